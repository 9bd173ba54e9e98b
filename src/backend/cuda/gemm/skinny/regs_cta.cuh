#pragma once
// The CTA of gemm_skinny_regs: its n_tiles of all matrices in rounds of one or two. In a round
// every warp multiplies its own k_steps (regs_warp.cuh); then the warps' partial sums are reduced.

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/gemm/activations/staged_input.cuh"
#include "backend/cuda/gemm/epilogue.cuh"
#include "backend/cuda/gemm/partition/cta_range_begins.cuh"
#include "backend/cuda/gemm/skinny/regs_warp.cuh"
#include "backend/cuda/gemm/skinny/regs_work.h"

namespace bl::cuda {

// N_tiles of gate whose results wait in shared memory for those of up.
inline constexpr int kGates = 7;

// Sums of an n_tile.
template <int TokenTiles>
constexpr int kNTileSums = kNTileColumns* kTokenTile* TokenTiles;

struct RegsLaunch {
  PackedGemmArgs args;
  RegsWork work;
  // Each warp has its own pipeline of so many stages; a stage holds the n_tiles of a round.
  int stages = 0;
  int early = 0;                         // rounds issued before the activations are read
  int pipeline_offset[kRegsWarps] = {};  // in shared memory
  int codes[kRegsWarps] = {};            // bytes of an n_tile's codes; its scales follow
  int scales = 0;                        // bytes of an n_tile's scales
};

// The fixed part of shared memory, in front of the pipelines.
template <int TokenTiles, int NTiles>
struct alignas(128) RegsSmem {
  // Barriers of the partial-sum buffers. Full: every warp has written its sums; empty: they are
  // reduced.
  std::uint64_t full[2];
  std::uint64_t empty[2];
  float row_scales[kMaxSkinnyTokens];
  // For results that are staged: the fragment offsets of the CTA's columns, and each token's
  // largest magnitude as the bits of a float.
  std::uint16_t staged_offsets[kMaxGatedRangeNTiles * kNTileColumns];
  int row_absmax[kMaxSkinnyTokens];
  // The row of the launch's first token in the output, where every k_split has rows of its own. In
  // shared memory, because the loop over rounds has no register to spare.
  int first_row;
  RoundNTile n_tiles[kMaxRangeNTiles];
  NTileAddress addresses[kMaxRangeNTiles];
  RegsQuad quads[kMaxMatrices][kRegsWarps][kWarpQuads];
  std::uint32_t scale_offsets[kMaxMatrices][kRegsWarps][kWarpKSteps];  // in an n_tile
  float group_scales[kMaxMatrices][kRegsWarps][kWarpKSteps];
  RegsTables<TokenTiles> tables[kRegsWarps];
  float warp_sums[2][kRegsWarps][NTiles * kNTileSums<TokenTiles>];
  float gates[kGates][kNTileSums<TokenTiles>];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Divides the n_tiles [begin, end) of all matrices into rounds of NTiles, none with n_tiles of two
// matrices. Gated GEMMs have rounds of up to kGates n_tiles of gate, then of the same n_tiles of
// up.
template <int NTiles, int Turns>
class RegsRounds {
 public:
  __device__ __forceinline__ RegsRounds(const PackedGemmArgs& args, int begin, int end,
                                        bool upper_half_reduces)
      : args_(args), begin_(begin), end_(end), upper_half_reduces_(upper_half_reduces) {}

  __device__ __forceinline__ int count() const {
    if (args_.gated) {
      const int n_tiles = end_ - begin_;
      return n_tiles / kGates * kBatch + 2 * rounds_of(n_tiles % kGates);
    }
    int count = 0;
    int before = 0;
    for (int m = 0; m < args_.count; ++m) {
      count += rounds_of(last(m, before) - first(before));
      before += args_.matrices[m].view.n_tiles;
    }
    return count;
  }
  // Returns round i < count().
  __device__ __forceinline__ RoundNTile find(int i) const {
    if (args_.gated) {
      const int batch = i / kBatch * kGates;
      const int size = min(kGates, end_ - begin_ - batch);
      const int at = i % kBatch;
      const int gate = at % rounds_of(size);
      return RoundNTile::of(at / rounds_of(size), begin_ + batch + gate * NTiles,
                            (gate + 1) * NTiles <= size, gate, turn(gate));
    }
    int left = i;
    int before = 0;
    for (int m = 0;; ++m) {
      const int n_tiles = last(m, before) - first(before);
      if (left < rounds_of(n_tiles)) {
        return RoundNTile::of(m, first(before) + left * NTiles, (left + 1) * NTiles <= n_tiles, 0,
                              turn(i));
      }
      left -= rounds_of(n_tiles);
      before += args_.matrices[m].view.n_tiles;
    }
  }

 private:
  static constexpr int kBatch = 2 * ((kGates + NTiles - 1) / NTiles);

  __device__ __forceinline__ static int rounds_of(int n_tiles) {
    return (max(n_tiles, 0) + NTiles - 1) / NTiles;
  }
  // The n_tiles of the CTA's range in one matrix; `before`: n_tiles of the matrices before it.
  __device__ __forceinline__ int first(int before) const { return max(begin_ - before, 0); }
  __device__ __forceinline__ int last(int m, int before) const {
    return min(end_ - before, args_.matrices[m].view.n_tiles);
  }
  __device__ __forceinline__ int turn(int number) const {
    return upper_half_reduces_ ? Turns / 2 + number % (Turns / 2) : number % Turns;
  }

  const PackedGemmArgs& args_;
  int begin_;
  int end_;
  bool upper_half_reduces_;
};

template <int TokenTiles, ScaleKind kKind, WidthSet kWidths, int NTiles>
class RegsCta {
 public:
  using Memory = RegsSmem<TokenTiles, NTiles>;
  __device__ __forceinline__ RegsCta(const RegsLaunch& launch, Memory& shared, std::byte* memory)
      : launch_(launch), shared_(shared), pipeline_(memory + launch.pipeline_offset[warp_index()]) {
    const int cta_ranges = launch.work.cta_ranges.ctas;
    k_split_ = static_cast<int>(blockIdx.x) / cta_ranges;
    cta_range_ = static_cast<int>(blockIdx.x) - k_split_ * cta_ranges;
    code_bytes_ = launch.codes[warp_index()];
  }

  // Finds the CTA's rounds and its warps' quads.
  __device__ __forceinline__ void begin() {
    const PackedGemmArgs& args = launch_.args;
    load_quads();
    const auto cta_range = static_cast<unsigned>(cta_range_);
    const int begin = cta_range_begin(launch_.work.cta_ranges.begins, cta_range);
    const int end = cta_range_begin(launch_.work.cta_ranges.begins, cta_range + 1);
    const RegsRounds<NTiles, kTurns> rounds(args, begin, end, launch_.work.upper_half_reduces);
    rounds_ = rounds.count();
    const int i = static_cast<int>(threadIdx.x);
    if (i < rounds_) {
      const RoundNTile own = rounds.find(i);
      const CodeMatrixView& m = args.matrices[own.matrix()].view;
      shared_.n_tiles[i] = own;
      shared_.addresses[i] = {m.codes + own.n_tile() * m.n_tile_bytes,
                              m.scales + own.n_tile() * scale_stride(m.kind, m.groups)};
    }
    if (i < kMaxSkinnyTokens) shared_.row_absmax[i] = 0;
    if (args.stage_out.fragments != nullptr) load_staged_offsets(begin, end - begin);
    if (i == 0) {
      shared_.first_row = static_cast<int>(args.first_token) + k_split_ * launch_.work.k_split_rows;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        barrier_init(shared_.full + half, kRegsThreads);
        barrier_init(shared_.empty + half, kReducers);
      }
    }
    __syncthreads();
  }

  __device__ __forceinline__ void run() {
    RegsWarp<TokenTiles, kKind, kWidths, NTiles> warp(shared_.tables[warp_index()]);
    int stage = 0;
    // One loop body for everything: negative rounds only fill the pipeline, the last one only
    // reduces.
#pragma unroll 1
    for (int i = -launch_.stages; i <= rounds_; ++i) {
      if (i == launch_.early - launch_.stages) open_first(warp);
      if (i >= 0 && i < rounds_) multiply(warp, i, stage);
      __syncwarp();
      issue(i + launch_.stages, stage);
      if (++stage == launch_.stages) stage = 0;
      if (i >= 0 && i < rounds_) publish_sums(i, warp.totals);
      if (i > 0) reduce_round(i - 1);
    }
    if (launch_.args.stage_out.fragments != nullptr) reduce_row_absmax();
  }

 private:
  static constexpr int kSums = NTiles * kNTileSums<TokenTiles>;  // of a round
  static constexpr int kReducers = kSums / 2;                    // threads that reduce them
  static constexpr int kTurns = kRegsThreads / kReducers;

  // Bytes of an n_tile in a stage.
  __device__ __forceinline__ int n_tile_bytes() const { return code_bytes_ + launch_.scales; }

  __device__ __forceinline__ void load_quads() {
    constexpr int kWords = kWarpQuads * static_cast<int>(sizeof(RegsQuad) / sizeof(uint4));
    const int lane = lane_index();
    if (lane < kWords * launch_.args.count) {
      const int matrix = lane / kWords;
      const RegsQuad* from =
          launch_.work.quads[matrix] + (k_split_ * kRegsWarps + warp_index()) * kWarpQuads;
      reinterpret_cast<uint4*>(shared_.quads[matrix][warp_index()])[lane % kWords] =
          __ldg(reinterpret_cast<const uint4*>(from) + lane % kWords);
    }
    __syncwarp();
    const int matrix = lane / kWarpKSteps;
    if (matrix < launch_.args.count) {
      const int p = lane % kWarpKSteps;
      shared_.scale_offsets[matrix][warp_index()][p] =
          shared_.quads[matrix][warp_index()][p / kQuadKSteps].group[p % kQuadKSteps] *
          static_cast<std::uint32_t>(scale_bytes(launch_.args.matrices[matrix].view.kind));
      const int k_block =
          shared_.quads[matrix][warp_index()][p / kQuadKSteps].k_block[p % kQuadKSteps];
      group_scale_ = __ldg(&launch_.args.matrices[matrix].view.k_blocks[k_block].group_scale);
    }
  }

  __device__ __forceinline__ void open_first(RegsWarp<TokenTiles, kKind, kWidths, NTiles>& warp) {
    const PackedGemmArgs& args = launch_.args;
    if constexpr (kKind == ScaleKind::kExl2) {
      const int matrix = lane_index() / kWarpKSteps;
      shared_.group_scales[matrix][warp_index()][lane_index() % kWarpKSteps] = group_scale_;
      __syncwarp();
    }
    open_ = shared_.n_tiles[0].matrix();
    open(warp, open_);
    const PackedGemmMatrix& m = args.matrices[open_];
    const RegsQuad* quads = shared_.quads[open_][warp_index()];
    // Everything that the loads behind the wait need is computed in front of it, and the loads are
    // issued together: the first round of the launch waits for them.
    warp.locate_activations(quads, args.tokens);
    const std::byte* fragments = first_fragments(args, m);
    const float* scales = args.row_scales + args.first_token;
    const bool staged = args.feature_of_k != nullptr;
    const int token = min(static_cast<int>(threadIdx.x), args.tokens - 1);
    pdl_wait();
    const float scale = __ldcg(scales + token);
    if (staged) warp.load_row_scales(scales, args.tokens);
    warp.load(fragments);
    if (threadIdx.x < kMaxSkinnyTokens) {
      shared_.row_scales[threadIdx.x] = staged ? decoded_row_scale(scale) : scale;
    }
    if (staged) warp.repack_imprecise_rows(quads, args);
    warp.open_sums();
  }

  __device__ __forceinline__ void multiply(RegsWarp<TokenTiles, kKind, kWidths, NTiles>& warp,
                                           int i, int stage) {
    const int matrix = shared_.n_tiles[i].matrix();
    if (matrix != open_) {
      open(warp, matrix);
      if (launch_.args.matrices[matrix].fragments != launch_.args.matrices[open_].fragments ||
          launch_.work.quads[matrix] != launch_.work.quads[open_]) {
        load(warp, matrix);
      }
      open_ = matrix;
    }
    wait_copies(launch_.stages - 1);
    __syncwarp();
    const std::byte* at = pipeline_ + stage * NTiles * n_tile_bytes();
    warp.multiply(at, at + code_bytes_, n_tile_bytes());
  }

  // Copies round i of the range to a stage; nothing if there is no such round. If the second n_tile
  // of a round does not exist, the first is copied twice.
  __device__ __forceinline__ void issue(int i, int stage) {
    if (i < rounds_) {
      NTileAddress address = shared_.addresses[i];
      const RoundNTile own = shared_.n_tiles[i];
      const int matrix = own.matrix();
      const CodeMatrixView& m = launch_.args.matrices[matrix].view;
      const RegsQuad* quads = shared_.quads[matrix][warp_index()];
      const uint4 first = *reinterpret_cast<const uint4*>(quads);
      const uint4 second = *reinterpret_cast<const uint4*>(quads + 1);
      std::uint32_t begin = shared_address(pipeline_) + stage * NTiles * n_tile_bytes();
      issue_n_tile(matrix, address, first, second, begin);
      if constexpr (NTiles > 1) {
        address.codes += own.both() ? m.n_tile_bytes : 0;
        address.scales += own.both() ? scale_stride(m.kind, m.groups) : 0;
        issue_n_tile(matrix, address, first, second, begin + n_tile_bytes());
      }
    }
    commit_copies();
  }
  // `first`, `second`: the first 16 bytes of the warp's two quads.
  __device__ __forceinline__ void issue_n_tile(int matrix, const NTileAddress& address,
                                               const uint4& first, const uint4& second,
                                               std::uint32_t begin) {
    // Offsets are loaded before any copy, and scales are copied among the codes: a run of cp.async
    // costs three instructions more wherever it begins.
    const ScaleCopies scale_copies(*this, address.scales, matrix, begin + code_bytes_);
    // Keep these addresses per-lane: with a part in uniform registers ptxas 13.0 may emit an
    // illegal cp.async (tools/check_machine_code).
    const std::uint32_t to = begin + lane_index() * 16;
    const std::byte* codes = address.codes + lane_index() * 16;
    const std::uint32_t to_second = to + (first.y >> 16) * 16;
    if ((first.z | second.z) == 0) {
      const std::byte* from = codes + first.x * std::uint32_t{k_step_bytes(1)};
      const std::byte* from_second = codes + second.x * std::uint32_t{k_step_bytes(1)};
      issue_half<0>(to, from, first);
      issue_half<0>(to_second, from_second, second);
      scale_copies.issue();
      // Quads with codes of more than four bits.
      if (kWidths >= width_set({5}) && max(first.y, second.y) >= 65u << 16) {
        issue_half<2>(to, from, first);
        issue_half<2>(to_second, from_second, second);
      }
    } else {
      issue_runs(to, codes, first);
      issue_runs(to_second, codes, second);
      scale_copies.issue();
    }
  }

  // Copies this lane's 16 bytes number First and First + 1 of a quad. `head`: a RegsQuad's first 16
  // bytes.
  template <int First>
  __device__ __forceinline__ static void issue_half(std::uint32_t to, const std::byte* from,
                                                    const uint4& head) {
    const auto copies = static_cast<int>(head.y >> 16);
#pragma unroll
    for (int k = First; k < First + 2; ++k) {
      copy_small_if(lane_index() + k * 32 < copies, to + k * 512, from + k * 512, evict_first());
    }
  }
  // Copies a quad of two runs.
  __device__ __forceinline__ static void issue_runs(std::uint32_t to, const std::byte* codes,
                                                    const uint4& head) {
    const std::byte* from = codes + head.x * std::uint32_t{k_step_bytes(1)};
    const auto split = static_cast<int>(head.y & 0xffffu);
    const auto copies = static_cast<int>(head.y >> 16);
#pragma unroll 1
    for (int copy = lane_index(); copy < copies; copy += 32, to += 512, from += 512) {
      copy_small_if(true, to, from + (copy >= split ? static_cast<int>(head.z) : 0), evict_first());
    }
  }

  // This lane's part of the copies of an n_tile's scales, eight bytes each.
  class ScaleCopies {
   public:
    __device__ __forceinline__ ScaleCopies(const RegsCta& cta, const std::byte* scales, int matrix,
                                           std::uint32_t to)
        : to_(to + lane_index() * 8) {
      const std::uint32_t* addresses = cta.shared_.scale_offsets[matrix][warp_index()];
      const ScaleKind kind =
          kKind == ScaleKind::kGptqZeros4 ? cta.launch_.args.matrices[matrix].view.kind : kKind;
      const int eights = scale_bytes(kind) / 8;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const int e = lane_index() + k * 32;
        const int p = e / eights;
        from_[k] = scales + (addresses[min(p, kWarpKSteps - 1)] + (e - p * eights) * 8);
        wanted_[k] = p < kWarpKSteps;
      }
    }
    __device__ __forceinline__ void issue() const {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        copy_eight_if(wanted_[k], to_ + k * 256, from_[k], evict_first());
      }
    }

   private:
    // With zero points a k_step may have 64 bytes.
    static constexpr int kCount = kKind == ScaleKind::kGptqZeros4 ? 2 : 1;

    std::uint32_t to_;
    const std::byte* from_[kCount];
    bool wanted_[kCount];
  };

  __device__ __forceinline__ void open(RegsWarp<TokenTiles, kKind, kWidths, NTiles>& warp,
                                       int matrix) {
    warp.open(launch_.args.matrices[matrix].view, shared_.quads[matrix][warp_index()],
              shared_.group_scales[matrix][warp_index()]);
  }
  __device__ __forceinline__ void load(RegsWarp<TokenTiles, kKind, kWidths, NTiles>& warp,
                                       int matrix) {
    const PackedGemmArgs& args = launch_.args;
    const PackedGemmMatrix& m = args.matrices[matrix];
    warp.locate_activations(shared_.quads[matrix][warp_index()], args.tokens);
    warp.load(first_fragments(args, m));
    warp.open_sums();
  }

  // Writes this warp's sums of round i, for the warps that reduce them.
  __device__ __forceinline__ void publish_sums(int i,
                                               const float (&totals)[NTiles][TokenTiles][4]) {
    const int half = i % 2;
    if (i >= 2) barrier_wait(shared_.empty + half, static_cast<std::uint32_t>(i / 2 - 1) & 1u);
    auto* to = reinterpret_cast<float4*>(shared_.warp_sums[half][warp_index()]) + lane_index();
#pragma unroll
    for (int k = 0; k < NTiles; ++k) {
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n) {
        const float(&t)[4] = totals[k][n];
        to[(k * TokenTiles + n) * 32] = make_float4(t[0], t[1], t[2], t[3]);
      }
    }
    barrier_arrive(shared_.full + half);
  }

  // Epilogue of round i, by the warps whose turn it is: a thread reduces two tokens of one column,
  // which takes fewer instructions than two threads with one token each.
  __device__ __forceinline__ void reduce_round(int i) {
    const RoundNTile own = shared_.n_tiles[i];
    if (static_cast<int>(threadIdx.x / unsigned{kReducers}) != own.turn()) return;
    const int half = i % 2;
    const auto e = static_cast<int>(threadIdx.x % unsigned{kReducers}) * 2;
    barrier_wait(shared_.full + half, static_cast<std::uint32_t>(i / 2) & 1u);
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < kRegsWarps; ++w) {
      const float2 partial = *reinterpret_cast<const float2*>(shared_.warp_sums[half][w] + e);
      sums.x += partial.x;
      sums.y += partial.y;
    }
    barrier_arrive(shared_.empty + half);
    if (NTiles > 1 && e >= kNTileSums<TokenTiles> && !own.both()) return;
    store(own, e, sums);
  }

  // Returns the matrix, token and column of sum `e` of the n_tiles from `n_tile` on.
  __device__ __forceinline__ static ResultIndex result_index_of(int matrix, int n_tile, int e) {
    const int lane = e % 128 / 4;
    return {matrix, e / 128 % TokenTiles * kTokenTile + lane % 4 * 2 + e % 2,
            (n_tile + e / kNTileSums<TokenTiles>)*kNTileColumns + e / 2 % 2 * 8 + lane / 4};
  }
  // Stores sums e and e + 1: two tokens of one column, of which the second may not exist.
  __device__ __forceinline__ void store(const RoundNTile& own, int e, const float2& sums) {
    const PackedGemmArgs& args = launch_.args;
    const ResultIndex at = result_index_of(own.matrix(), own.n_tile(), e);
    const PackedGemmMatrix& m = args.matrices[at.matrix];
    if (at.token >= args.tokens || at.column >= m.view.out) return;
    const auto& scales = *reinterpret_cast<const float2*>(shared_.row_scales + at.token);
    float2 values =
        make_float2(sums.x * scales.x * args.multiplier, sums.y * scales.y * args.multiplier);
    if (m.bias != nullptr) {
      const float bias = m.bias[at.column];
      values.x += bias;
      values.y += bias;
    }
    if (args.gated) {
      float2& gates = reinterpret_cast<float2*>(shared_.gates)[own.gate() * kReducers + e / 2];
      if (at.matrix == 0) {
        gates = values;
        return;
      }
      values = activated(gates, values);
    }
    const bool both = at.token + 1 < args.tokens;
    float* to = m.out + (shared_.first_row + at.token) * m.out_stride + at.column;
    if (args.accumulate) {
      values.x += *to;
      if (both) values.y += to[m.out_stride];
    }
    *to = values.x;
    if (both) to[m.out_stride] = values.y;
    if (args.stage_out.fragments == nullptr || at.matrix != 1) return;
    stage_value(at.token, at.column, values.x);
    if (both) stage_value(at.token + 1, at.column, values.y);
  }
  // A loop over both values, so that the code of all activations exists only once.
  __device__ __forceinline__ float2 activated(float2 gates, float2 values) const {
#pragma unroll 1
    for (int k = 0; k < 2; ++k) {
      const float value = cuda::activated(launch_.args.activation, gates.x, values.x, true);
      gates.x = gates.y;
      values = make_float2(values.y, value);
    }
    return values;
  }
  // Copies the fragment offsets of the range's columns, two a thread; they arrive with the first
  // codes.
  __device__ __forceinline__ void load_staged_offsets(int first_n_tile, int n_tiles) {
    const int i = static_cast<int>(threadIdx.x) * 2;
    const int column = first_n_tile * kNTileColumns + i;
    const bool there = i < n_tiles * kNTileColumns && column < launch_.args.matrices[1].view.out;
    if (!there) return;
    copy_or_clear<4>(shared_address(shared_.staged_offsets + i),
                     launch_.args.stage_out.fragment_offset_of_feature + column, true);
  }
  // Stages a result for the next GEMM.
  __device__ __forceinline__ void stage_value(int token, int column, float value) {
    const PackedGemmArgs& args = launch_.args;
    const int first = static_cast<int>(args.first_token);
    cuda::stage_value(args.stage_out, {first, args.tokens}, first + token,
                      shared_.staged_offsets[column - shared_.n_tiles[0].n_tile() * kNTileColumns],
                      value * (1.0f / kStagedScale));
    // The bits of non-negative floats have the order of the floats.
    atomicMax(shared_.row_absmax + token, __float_as_int(fabsf(value)));
  }
  // Adds the CTA's row_absmax to that of the staged rows.
  __device__ __forceinline__ void reduce_row_absmax() {
    const PackedGemmArgs& args = launch_.args;
    __syncthreads();
    const auto i = static_cast<int>(threadIdx.x);
    if (i >= args.tokens) return;
    atomicMax(reinterpret_cast<int*>(args.stage_out.row_scales) + args.first_token + i,
              shared_.row_absmax[i]);
  }

  const RegsLaunch& launch_;
  Memory& shared_;
  std::byte* pipeline_;
  int code_bytes_;  // of an n_tile in a stage
  int k_split_;
  int cta_range_;
  int rounds_ = 0;
  int open_ = 0;              // the matrix that is open
  float group_scale_ = 0.0f;  // of this lane's matrix and k_step
};

#endif

}  // namespace bl::cuda
