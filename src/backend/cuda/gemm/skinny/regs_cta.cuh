#pragma once
// A CTA of held_product(): a few strips of all matrices, in rounds; its warps' parts of them
// (held_warp.cuh) meet where they are added up.

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/gemm/skinny/gemm_skinny_regs.h"
#include "backend/cuda/gemm/skinny/regs_warp.cuh"
#include "backend/cuda/gemm/activations/staged_input.cuh"
#include "backend/cuda/gemm/epilogue.cuh"
#include "backend/cuda/gemm/partition/cta_range_begins.cuh"

namespace bl::cuda {

inline constexpr int kHeldThreads = kHeldWarps * 32;
inline constexpr int kMaxShareStrips = 128;  // strips of a CTA
inline constexpr int kMaxSharePairs = 48;    // where they are of gate and up
inline constexpr int kMaxSlots = 8;
inline constexpr int kFewestSlots = 2;
// Strips of the gate that wait for those of up.
inline constexpr int kGates = 7;

// Sums of a strip.
template <int Tiles>
constexpr int kStripSums = kStripColumns* kTokenTile* Tiles;

struct HeldLaunch {
  ProductArgs args;
  HeldWork work;
  // Each warp has a ring of its own, of `slots` strips.
  int slots = 0;
  int early = 0;                 // rounds asked for before the activations
  int ring_at[kHeldWarps] = {};  // in shared memory
  int codes[kHeldWarps] = {};    // bytes of a strip, then scales by places
  int scales = 0;                // bytes of all places
};

// What lies in shared memory before the rings.
template <int Tiles, int Strips>
struct alignas(128) HeldShared {
  // Of the sums of a round: all warps' are there, they have been added up.
  std::uint64_t filled[2];
  std::uint64_t empty[2];
  float token_scales[kMaxProductTokens];
  // Of what the CTA leaves: places of its columns, and what is largest (bits).
  std::uint16_t left_places[kMaxSharePairs * kStripColumns];
  int notes[kMaxProductTokens];
  // Where results of the launch's first token are: those of a part are rows of their own. Not in a
  // register, of which the loop of rounds has none to spare.
  int first_row;
  ShareStrip strips[kMaxShareStrips];
  StripPlace places[kMaxShareStrips];
  HeldQuad quads[kMaxMatrices][kHeldWarps][kWarpQuads];
  std::uint32_t scale_places[kMaxMatrices][kHeldWarps][kPlaces];  // of a strip
  float group_scales[kMaxMatrices][kHeldWarps][kPlaces];
  HeldTables<Tiles> tables[kHeldWarps];
  float parts[2][kHeldWarps][Strips * kStripSums<Tiles>];
  float gates[kGates][kStripSums<Tiles>];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The strips [begin, end) of all matrices in rounds of so many, none of two matrices; gated ones
// take a few of the first matrix, then the same ones of the second.
template <int Strips, int Turns>
class HeldRounds {
 public:
  __device__ __forceinline__ HeldRounds(const ProductArgs& args, int begin, int end,
                                        bool upper_adds)
      : args_(args), begin_(begin), end_(end), upper_adds_(upper_adds) {}

  __device__ __forceinline__ int count() const {
    if (args_.gated) {
      const int strips = end_ - begin_;
      return strips / kGates * kBatch + 2 * rounds_of(strips % kGates);
    }
    int count = 0;
    int before = 0;
    for (int m = 0; m < args_.count; ++m) {
      count += rounds_of(last(m, before) - first(before));
      before += args_.matrices[m].view.strips;
    }
    return count;
  }
  // i is less than count().
  __device__ __forceinline__ ShareStrip find(int i) const {
    if (args_.gated) {
      const int batch = i / kBatch * kGates;
      const int size = min(kGates, end_ - begin_ - batch);
      const int at = i % kBatch;
      const int gate = at % rounds_of(size);
      return ShareStrip::of(at / rounds_of(size), begin_ + batch + gate * Strips,
                            (gate + 1) * Strips <= size, gate, turn(gate));
    }
    int left = i;
    int before = 0;
    for (int m = 0;; ++m) {
      const int strips = last(m, before) - first(before);
      if (left < rounds_of(strips)) {
        return ShareStrip::of(m, first(before) + left * Strips, (left + 1) * Strips <= strips, 0,
                              turn(i));
      }
      left -= rounds_of(strips);
      before += args_.matrices[m].view.strips;
    }
  }

 private:
  static constexpr int kBatch = 2 * ((kGates + Strips - 1) / Strips);

  __device__ __forceinline__ static int rounds_of(int strips) {
    return (max(strips, 0) + Strips - 1) / Strips;
  }
  // Of the share's strips of a matrix.
  __device__ __forceinline__ int first(int before) const { return max(begin_ - before, 0); }
  __device__ __forceinline__ int last(int m, int before) const {
    return min(end_ - before, args_.matrices[m].view.strips);
  }
  __device__ __forceinline__ int turn(int number) const {
    return upper_adds_ ? Turns / 2 + number % (Turns / 2) : number % Turns;
  }

  const ProductArgs& args_;
  int begin_;
  int end_;
  bool upper_adds_;
};

template <int Tiles, ScaleKind kKind, WidthSet kWidths, int Strips>
class HeldCta {
 public:
  using Memory = HeldShared<Tiles, Strips>;
  __device__ __forceinline__ HeldCta(const HeldLaunch& launch, Memory& shared, std::byte* memory)
      : launch_(launch), shared_(shared), ring_(memory + launch.ring_at[warp_index()]) {
    const int shares = launch.work.shares.ctas;
    part_ = static_cast<int>(blockIdx.x) / shares;
    share_ = static_cast<int>(blockIdx.x) - part_ * shares;
    code_bytes_ = launch.codes[warp_index()];
  }

  // Finds the share, and its warps' quads.
  __device__ __forceinline__ void begin() {
    const ProductArgs& args = launch_.args;
    load_quads();
    const auto share = static_cast<unsigned>(share_);
    const int begin = share_begin(launch_.work.shares.begins, share);
    const int end = share_begin(launch_.work.shares.begins, share + 1);
    const HeldRounds<Strips, kTurns> rounds(args, begin, end, launch_.work.upper_adds);
    rounds_ = rounds.count();
    const int i = static_cast<int>(threadIdx.x);
    if (i < rounds_) {
      const ShareStrip own = rounds.find(i);
      const CodeMatrixView& m = args.matrices[own.matrix()].view;
      shared_.strips[i] = own;
      shared_.places[i] = {m.codes + own.strip() * m.strip_bytes,
                           m.scales + own.strip() * scale_stride(m.kind, m.groups)};
    }
    if (i < kMaxProductTokens) shared_.notes[i] = 0;
    if (args.leaves.fragments != nullptr) ask_for_places(begin, end - begin);
    if (i == 0) {
      shared_.first_row = static_cast<int>(args.first_token) + part_ * launch_.work.part_rows;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        barrier_init(shared_.filled + half, kHeldThreads);
        barrier_init(shared_.empty + half, kAdders);
      }
    }
    __syncthreads();
  }

  __device__ __forceinline__ void run() {
    HeldWarp<Tiles, kKind, kWidths, Strips> warp(shared_.tables[warp_index()]);
    int slot = 0;
    // The same code asks for the strips that fill the ring first, and adds up the last sums.
#pragma unroll 1
    for (int i = -launch_.slots; i <= rounds_; ++i) {
      if (i == launch_.early - launch_.slots) open_first(warp);
      if (i >= 0 && i < rounds_) multiply(warp, i, slot);
      __syncwarp();
      ask_for(i + launch_.slots, slot);
      if (++slot == launch_.slots) slot = 0;
      if (i >= 0 && i < rounds_) keep(i, warp.totals);
      if (i > 0) finish(i - 1);
    }
    if (launch_.args.leaves.fragments != nullptr) note_largest();
  }

 private:
  static constexpr int kSums = Strips * kStripSums<Tiles>;  // of a round
  static constexpr int kAdders = kSums / 2;                 // threads that add them up
  static constexpr int kTurns = kHeldThreads / kAdders;

  // From one strip in the ring to the next.
  __device__ __forceinline__ int strip_bytes() const { return code_bytes_ + launch_.scales; }

  __device__ __forceinline__ void load_quads() {
    constexpr int kWords = kWarpQuads * static_cast<int>(sizeof(HeldQuad) / sizeof(uint4));
    const int lane = lane_index();
    if (lane < kWords * launch_.args.count) {
      const int matrix = lane / kWords;
      const HeldQuad* from =
          launch_.work.quads[matrix] + (part_ * kHeldWarps + warp_index()) * kWarpQuads;
      reinterpret_cast<uint4*>(shared_.quads[matrix][warp_index()])[lane % kWords] =
          __ldg(reinterpret_cast<const uint4*>(from) + lane % kWords);
    }
    __syncwarp();
    const int matrix = lane / kPlaces;
    if (matrix < launch_.args.count) {
      const int p = lane % kPlaces;
      shared_.scale_places[matrix][warp_index()][p] =
          shared_.quads[matrix][warp_index()][p / kQuadUnits].group[p % kQuadUnits] *
          static_cast<std::uint32_t>(scale_bytes(launch_.args.matrices[matrix].view.kind));
      const int chunk = shared_.quads[matrix][warp_index()][p / kQuadUnits].chunk[p % kQuadUnits];
      group_scale_ = __ldg(&launch_.args.matrices[matrix].view.chunks[chunk].group_scale);
    }
  }

  __device__ __forceinline__ void open_first(HeldWarp<Tiles, kKind, kWidths, Strips>& warp) {
    const ProductArgs& args = launch_.args;
    if constexpr (kKind == ScaleKind::kExl2) {
      const int matrix = lane_index() / kPlaces;
      shared_.group_scales[matrix][warp_index()][lane_index() % kPlaces] = group_scale_;
      __syncwarp();
    }
    open_ = shared_.strips[0].matrix();
    open(warp, open_);
    const ProductMatrix& m = args.matrices[open_];
    const HeldQuad* quads = shared_.quads[open_][warp_index()];
    // Whatever the loads behind the wait need is there before it, and they are asked for together:
    // a launch's first product waits for them.
    warp.find(quads, args.tokens);
    const std::byte* fragments = first_fragments(args, m);
    const float* scales = args.token_scales + args.first_token;
    const bool left = args.channel_of_slot != nullptr;
    const int token = min(static_cast<int>(threadIdx.x), args.tokens - 1);
    dependency_wait();
    const float scale = __ldcg(scales + token);
    if (left) warp.ask_for_notes(scales, args.tokens);
    warp.load(fragments);
    if (threadIdx.x < kMaxProductTokens) {
      shared_.token_scales[threadIdx.x] = left ? scale_of_note(scale) : scale;
    }
    if (left) warp.mend(quads, args);
    warp.open_sums();
  }

  __device__ __forceinline__ void multiply(HeldWarp<Tiles, kKind, kWidths, Strips>& warp, int i,
                                           int slot) {
    const int matrix = shared_.strips[i].matrix();
    if (matrix != open_) {
      open(warp, matrix);
      if (launch_.args.matrices[matrix].fragments != launch_.args.matrices[open_].fragments ||
          launch_.work.quads[matrix] != launch_.work.quads[open_]) {
        load(warp, matrix);
      }
      open_ = matrix;
    }
    wait_copies(launch_.slots - 1);
    __syncwarp();
    const std::byte* at = ring_ + slot * Strips * strip_bytes();
    warp.multiply(at, at + code_bytes_, strip_bytes());
  }

  // Round i of the share on its way to the ring; nothing where there is none. A second strip that
  // is not there is the first again.
  __device__ __forceinline__ void ask_for(int i, int slot) {
    if (i < rounds_) {
      StripPlace place = shared_.places[i];
      const ShareStrip own = shared_.strips[i];
      const int matrix = own.matrix();
      const CodeMatrixView& m = launch_.args.matrices[matrix].view;
      const HeldQuad* quads = shared_.quads[matrix][warp_index()];
      const uint4 first = *reinterpret_cast<const uint4*>(quads);
      const uint4 second = *reinterpret_cast<const uint4*>(quads + 1);
      std::uint32_t begin = shared_address(ring_) + slot * Strips * strip_bytes();
      ask_for_strip(matrix, place, first, second, begin);
      if constexpr (Strips > 1) {
        place.codes += own.both() ? m.strip_bytes : 0;
        place.scales += own.both() ? scale_stride(m.kind, m.groups) : 0;
        ask_for_strip(matrix, place, first, second, begin + strip_bytes());
      }
    }
    commit_copies();
  }
  // `first`, `second`: beginnings of quads.
  __device__ __forceinline__ void ask_for_strip(int matrix, const StripPlace& place,
                                                const uint4& first, const uint4& second,
                                                std::uint32_t begin) {
    // Looked up before any copy, and asked for beside codes: a run of copies costs three
    // instructions more, wherever it begins.
    const ScaleCopies scale_copies(*this, place.scales, matrix, begin + code_bytes_);
    // Nothing of these addresses may be the same for all lanes: see tools/check_machine_code.
    const std::uint32_t to = begin + lane_index() * 16;
    const std::byte* codes = place.codes + lane_index() * 16;
    const std::uint32_t to_second = to + (first.y >> 16) * 16;
    if ((first.z | second.z) == 0) {
      const std::byte* from = codes + first.x * std::uint32_t{unit_bytes(1)};
      const std::byte* from_second = codes + second.x * std::uint32_t{unit_bytes(1)};
      ask_for_half<0>(to, from, first);
      ask_for_half<0>(to_second, from_second, second);
      scale_copies.ask();
      // Wider than four bits.
      if (kWidths >= width_set({5}) && max(first.y, second.y) >= 65u << 16) {
        ask_for_half<2>(to, from, first);
        ask_for_half<2>(to_second, from_second, second);
      }
    } else {
      ask_for_runs(to, codes, first);
      ask_for_runs(to_second, codes, second);
      scale_copies.ask();
    }
  }

  // This lane's pieces First and First + 1 of a quad. `head`: the beginning of a HeldQuad.
  template <int First>
  __device__ __forceinline__ static void ask_for_half(std::uint32_t to, const std::byte* from,
                                                      const uint4& head) {
    const auto pieces = static_cast<int>(head.y >> 16);
#pragma unroll
    for (int k = First; k < First + 2; ++k) {
      copy_small_if(lane_index() + k * 32 < pieces, to + k * 512, from + k * 512, read_once());
    }
  }
  // Of a quad of two runs.
  __device__ __forceinline__ static void ask_for_runs(std::uint32_t to, const std::byte* codes,
                                                      const uint4& head) {
    const std::byte* from = codes + head.x * std::uint32_t{unit_bytes(1)};
    const auto split = static_cast<int>(head.y & 0xffffu);
    const auto pieces = static_cast<int>(head.y >> 16);
#pragma unroll 1
    for (int piece = lane_index(); piece < pieces; piece += 32, to += 512, from += 512) {
      copy_small_if(true, to, from + (piece >= split ? static_cast<int>(head.z) : 0), read_once());
    }
  }

  // This lane's pieces of a strip's scales, eight bytes each.
  class ScaleCopies {
   public:
    __device__ __forceinline__ ScaleCopies(const HeldCta& cta, const std::byte* scales, int matrix,
                                           std::uint32_t to)
        : to_(to + lane_index() * 8) {
      const std::uint32_t* places = cta.shared_.scale_places[matrix][warp_index()];
      const ScaleKind kind =
          kKind == ScaleKind::kGptqZeros4 ? cta.launch_.args.matrices[matrix].view.kind : kKind;
      const int eights = scale_bytes(kind) / 8;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const int e = lane_index() + k * 32;
        const int p = e / eights;
        from_[k] = scales + (places[min(p, kPlaces - 1)] + (e - p * eights) * 8);
        wanted_[k] = p < kPlaces;
      }
    }
    __device__ __forceinline__ void ask() const {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        copy_eight_if(wanted_[k], to_ + k * 256, from_[k], read_once());
      }
    }

   private:
    // With zero points there may be 64 bytes a place.
    static constexpr int kCount = kKind == ScaleKind::kGptqZeros4 ? 2 : 1;

    std::uint32_t to_;
    const std::byte* from_[kCount];
    bool wanted_[kCount];
  };

  __device__ __forceinline__ void open(HeldWarp<Tiles, kKind, kWidths, Strips>& warp, int matrix) {
    warp.open(launch_.args.matrices[matrix].view, shared_.quads[matrix][warp_index()],
              shared_.group_scales[matrix][warp_index()]);
  }
  __device__ __forceinline__ void load(HeldWarp<Tiles, kKind, kWidths, Strips>& warp, int matrix) {
    const ProductArgs& args = launch_.args;
    const ProductMatrix& m = args.matrices[matrix];
    warp.find(shared_.quads[matrix][warp_index()], args.tokens);
    warp.load(first_fragments(args, m));
    warp.open_sums();
  }

  // This warp's sums of round i wait for the others'.
  __device__ __forceinline__ void keep(int i, const float (&totals)[Strips][Tiles][4]) {
    const int half = i % 2;
    if (i >= 2) barrier_wait(shared_.empty + half, static_cast<std::uint32_t>(i / 2 - 1) & 1u);
    auto* to = reinterpret_cast<float4*>(shared_.parts[half][warp_index()]) + lane_index();
#pragma unroll
    for (int k = 0; k < Strips; ++k) {
#pragma unroll
      for (int n = 0; n < Tiles; ++n) {
        const float(&t)[4] = totals[k][n];
        to[(k * Tiles + n) * 32] = make_float4(t[0], t[1], t[2], t[3]);
      }
    }
    barrier_arrive(shared_.filled + half);
  }

  // The results of round i, by the warps whose turn it is: a thread has those of two tokens and one
  // column, which is fewer instructions than two threads take.
  __device__ __forceinline__ void finish(int i) {
    const ShareStrip own = shared_.strips[i];
    if (static_cast<int>(threadIdx.x / unsigned{kAdders}) != own.turn()) return;
    const int half = i % 2;
    const auto e = static_cast<int>(threadIdx.x % unsigned{kAdders}) * 2;
    barrier_wait(shared_.filled + half, static_cast<std::uint32_t>(i / 2) & 1u);
    float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < kHeldWarps; ++w) {
      const float2 part = *reinterpret_cast<const float2*>(shared_.parts[half][w] + e);
      sums.x += part.x;
      sums.y += part.y;
    }
    barrier_arrive(shared_.empty + half);
    if (Strips > 1 && e >= kStripSums<Tiles> && !own.both()) return;
    store(own, e, sums);
  }

  // Of sum e of the strips from `strip` on.
  __device__ __forceinline__ static ResultPlace place_of(int matrix, int strip, int e) {
    const int lane = e % 128 / 4;
    return {matrix, e / 128 % Tiles * kTokenTile + lane % 4 * 2 + e % 2,
            (strip + e / kStripSums<Tiles>)*kStripColumns + e / 2 % 2 * 8 + lane / 4};
  }
  // Sums e and e + 1: of two tokens, of which the second may not be there.
  __device__ __forceinline__ void store(const ShareStrip& own, int e, const float2& sums) {
    const ProductArgs& args = launch_.args;
    const ResultPlace at = place_of(own.matrix(), own.strip(), e);
    const ProductMatrix& m = args.matrices[at.matrix];
    if (at.token >= args.tokens || at.column >= m.view.out) return;
    const auto& scales = *reinterpret_cast<const float2*>(shared_.token_scales + at.token);
    float2 values =
        make_float2(sums.x * scales.x * args.multiplier, sums.y * scales.y * args.multiplier);
    if (m.bias != nullptr) {
      const float bias = m.bias[at.column];
      values.x += bias;
      values.y += bias;
    }
    if (args.gated) {
      float2& gates = reinterpret_cast<float2*>(shared_.gates)[own.gate() * kAdders + e / 2];
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
    if (args.leaves.fragments == nullptr || at.matrix != 1) return;
    leave(at.token, at.column, values.x);
    if (both) leave(at.token + 1, at.column, values.y);
  }
  // The code of all activations is there once.
  __device__ __forceinline__ float2 activated(float2 gates, float2 values) const {
#pragma unroll 1
    for (int k = 0; k < 2; ++k) {
      const float value = cuda::activated(launch_.args.activation, gates.x, values.x, true);
      gates.x = gates.y;
      values = make_float2(values.y, value);
    }
    return values;
  }
  // Of the columns of the share's strips, two a thread; they come with the first codes.
  __device__ __forceinline__ void ask_for_places(int first_strip, int strips) {
    const int i = static_cast<int>(threadIdx.x) * 2;
    const int column = first_strip * kStripColumns + i;
    const bool there = i < strips * kStripColumns && column < launch_.args.matrices[1].view.out;
    if (!there) return;
    copy_or_clear<4>(shared_address(shared_.left_places + i),
                     launch_.args.leaves.place_of_channel + column, true);
  }
  // A result to the next product, too.
  __device__ __forceinline__ void leave(int token, int column, float value) {
    const ProductArgs& args = launch_.args;
    const int first = static_cast<int>(args.first_token);
    cuda::leave(args.leaves, {first, args.tokens}, first + token,
                shared_.left_places[column - shared_.strips[0].strip() * kStripColumns],
                value * (1.0f / kLeftScale));
    // Floats that are not negative are in the order of their bits.
    atomicMax(shared_.notes + token, __float_as_int(fabsf(value)));
  }
  // Notes of what was left.
  __device__ __forceinline__ void note_largest() {
    const ProductArgs& args = launch_.args;
    __syncthreads();
    const auto i = static_cast<int>(threadIdx.x);
    if (i >= args.tokens) return;
    atomicMax(reinterpret_cast<int*>(args.leaves.notes) + args.first_token + i, shared_.notes[i]);
  }

  const HeldLaunch& launch_;
  Memory& shared_;
  std::byte* ring_;
  int code_bytes_;  // of a strip in the ring
  int part_;
  int share_;
  int rounds_ = 0;
  int open_ = 0;              // matrix
  float group_scale_ = 0.0f;  // of this lane's matrix and place
};

#endif

}  // namespace bl::cuda
