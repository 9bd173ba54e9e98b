#pragma once
// What one warp of gemm_skinny_regs does: it multiplies the activations of its eight k_steps, held
// in registers, by these k_steps of one n_tile after the other, or of two at once. Two share the
// decoding loop's instructions and give the tensor cores independent sums.

#include "backend/cuda/device/async_copy.cuh"
#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/activations/staged_input.cuh"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/gemm/partition/regs_plan.h"
#include "backend/cuda/gemm/skinny/k_block_mma.cuh"

namespace bl::cuda {

// What a CTA multiplies in a round: an n_tile of a matrix, or two adjacent ones.
struct RoundNTile {
  std::uint32_t word;
  __device__ __forceinline__ static RoundNTile of(int matrix, int n_tile, bool both, int gate,
                                                  int turn) {
    return {static_cast<std::uint32_t>(n_tile) | (both ? 1u << 23 : 0u) |
            static_cast<std::uint32_t>(matrix) << 24 | static_cast<std::uint32_t>(gate) << 26 |
            static_cast<std::uint32_t>(turn) << 29};
  }
  // The first n_tile.
  __device__ __forceinline__ int n_tile() const { return static_cast<int>(word & 0x7fffffu); }
  // Whether there is a second one.
  __device__ __forceinline__ bool both() const { return (word >> 23 & 1u) != 0; }
  __device__ __forceinline__ int matrix() const { return static_cast<int>(word >> 24 & 3u); }
  // Where the gate's results wait, below kGates.
  __device__ __forceinline__ int gate() const { return static_cast<int>(word >> 26 & 7u); }
  // Which warps reduce its sums; the same ones for gate and up.
  __device__ __forceinline__ int turn() const { return static_cast<int>(word >> 29); }
};

// The addresses of an n_tile's codes and scales.
struct alignas(16) NTileAddress {
  const std::byte* codes;
  const std::byte* scales;
};

// A warp's tables of one matrix, in shared memory. Indices are k_steps of the warp.
template <int TokenTiles>
struct RegsTables {
  // At a k_block's first k_step: −zero · Σx of tokens 2t and 2t + 1, twice, with which the sums of
  // lane t begin (EXL2's zero is the centre of the width). GPTQ with zero points: Σx, at a
  // k_block's last k_step, because there it is subtracted at the end, together with the scales.
  float4 sums[kWarpKSteps][TokenTiles][4];
  // EXL2: the scale that code c means, at any k_step of a k_block.
  float scales[kWarpKSteps][16];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// kKind: kExl2, kGptq, or kGptqZeros4 for any kind that a GPTQ matrix may have. kWidths: the widths
// that occur.
template <int TokenTiles, ScaleKind kKind, WidthSet kWidths, int NTiles>
class RegsWarp {
 public:
  static constexpr bool kGptq = kKind != ScaleKind::kExl2;
  // Each k_block has its own zero points; otherwise all have the same, which is in the tables.
  static constexpr bool kZeros = kKind == ScaleKind::kGptqZeros4;
  float totals[NTiles][TokenTiles][4];

  __device__ __forceinline__ RegsWarp(RegsTables<TokenTiles>& tables) : tables_(tables) {}

  // Computes where the activations of `tokens` tokens are.
  __device__ __forceinline__ void locate_activations(const RegsQuad* quads, int tokens) {
#pragma unroll
    for (int p = 0; p < kWarpKSteps; ++p) {
      rows_[p] =
          quads[p / kQuadKSteps].k_step[p % kQuadKSteps] * static_cast<std::uint32_t>(tokens);
    }
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n)
      tokens_[n] = static_cast<std::uint32_t>(token_of(n, tokens));
  }
  // Loads the activations. `fragments`: k_step 0.
  __device__ __forceinline__ void load(const std::byte* fragments) {
    const std::byte* from = fragments + lane_index() % 4 * 16;
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) {
#pragma unroll
      for (int p = 0; p < kWarpKSteps; ++p) {
        // L2 only (ld.cg): L1 may hold data from before the launch in front.
        x_[p][n] = __ldcg(reinterpret_cast<const uint4*>(from + (rows_[p] + tokens_[n]) *
                                                                    std::uint32_t{kLaneBytes}));
      }
    }
  }

  // Loads the row_absmax of this lane's tokens, where fragments were staged.
  __device__ __forceinline__ void load_row_scales(const float* row_scales, int tokens) {
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) row_scales_[n] = __ldcg(row_scales + token_of(n, tokens));
  }
  // Packs rows again from F32 whose row_absmax says that their staged fragments lost precision.
  __device__ __forceinline__ void repack_imprecise_rows(const RegsQuad* quads,
                                                        const PackedGemmArgs& args) {
    bool serve = true;
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) serve &= staged_row_serves(row_scales_[n]);
    if (__builtin_expect(static_cast<long>(__all_sync(kAllLanes, serve)), 1) != 0) return;
      // One k_step after the other, so that the code exists only once.
#pragma unroll 1
    for (int i = 0; i < kWarpKSteps * TokenTiles; ++i) {
      const int p = i / TokenTiles;
      const float row_scale = i % TokenTiles == 0 ? row_scales_[0] : row_scales_[TokenTiles - 1];
      if (staged_row_serves(row_scale)) continue;
      const int k_step = quads[p / kQuadKSteps].k_step[p % kQuadKSteps];
      const float* row =
          args.x + (args.first_token + token_of(i % TokenTiles, args.tokens)) * args.x_stride;
      const uint4 made = packed_k_step(row, args.feature_of_k + k_step * kKStepSize,
                                       1.0f / decoded_row_scale(row_scale));
#pragma unroll
      for (int k = 0; k < kWarpKSteps * TokenTiles; ++k) {
        if (k == i) x_[k / TokenTiles][k % TokenTiles] = made;
      }
    }
  }

  // Make the tables of a matrix: open() what depends on weights alone, open_sums() the rest, once
  // the activations are loaded. `group_scales`: EXL2, by k_step.
  __device__ __forceinline__ void open(const CodeMatrixView& m, const RegsQuad* quads,
                                       const float* group_scales) {
#pragma unroll
    for (int q = 0; q < kWarpQuads; ++q) info_[q] = quads[q].info;
    kind_ = m.kind;
    base_ = static_cast<float>(m.zero);
    if constexpr (kGptq) {
      scale_bytes_ = cuda::scale_bytes(m.kind);
    } else {
      produce_scales(group_scales);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void open_sums() {
    float sums[kWarpQuads][4] = {};
    int begins[kWarpQuads] = {};
#pragma unroll
    for (int u = 0; u < kQuadKSteps; ++u) {
      // Both quads side by side: the tensor cores can add the second while the first one waits.
#pragma unroll
      for (int q = 0; q < kWarpQuads; ++q) {
        if (begins_k_block(info_[q], u)) {
          begins[q] = q * kQuadKSteps + u;
#pragma unroll
          for (int c = 0; c < 4; ++c) sums[q][c] = 0.0f;
        }
        add_ones(q * kQuadKSteps + u, sums[q]);
      }
#pragma unroll
      for (int q = 0; q < kWarpQuads; ++q) {
        if (ends_k_block(info_[q], u)) {
          store_sums(kZeros ? q * kQuadKSteps + u : begins[q], factor_of(k_step_bits(info_[q], u)),
                     sums[q]);
        }
      }
    }
    __syncwarp();
  }

  // totals = this warp's partial sums of the n_tiles. `codes`: first quad of the first n_tile;
  // `scales`: by k_step; `stride`: bytes to the next n_tile.
  __device__ __forceinline__ void multiply(const std::byte* codes, const std::byte* scales,
                                           int stride) {
    scales_ = scales;
    stride_ = stride;
    clear(totals);
    const std::byte* second = multiply_quad<0>(codes);
    if (info_[1] != 0) multiply_quad<1>(second);
  }

 private:
  static constexpr int kLaneBytes = 64;  // of a token and k_step

  // Returns this lane's token. Lanes of tokens that do not exist use the last one; their results
  // are not read.
  __device__ __forceinline__ static int token_of(int tile, int tokens) {
    return min(tile * kTokenTile + lane_index() / 4, tokens - 1);
  }

  // Packs this lane's halves of a k_step, as pack_activations() does.
  __device__ __forceinline__ static uint4 packed_k_step(const float* row, const int* features,
                                                        float factor) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // registers 2s + r: k = 16s + 8r + 2t + e
      const int2 pair = __ldg(reinterpret_cast<const int2*>(features + i * 8) + lane_index() % 4);
      const float times = i < 2 ? factor : factor * (1.0f / 16.0f);
      words[i] = pack_halves(__ldcg(row + pair.x) * times, __ldcg(row + pair.y) * times);
    }
    return {words[0], words[1], words[2], words[3]};
  }

  __device__ __forceinline__ static void clear(float (&sums)[NTiles][TokenTiles][4]) {
#pragma unroll
    for (int i = 0; i < NTiles; ++i)
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[i][n][c] = 0.0f;
  }

  // The factor of Σx in the tables: −2^(bits − 1) for EXL2.
  __device__ __forceinline__ float factor_of(int bits) const {
    if constexpr (kZeros) return 1.0f;
    if constexpr (kGptq) return -base_;
    return -__uint_as_float((126u + static_cast<std::uint32_t>(bits)) << 23);
  }

  __device__ __forceinline__ void produce_scales(const float* group_scales) {
    const int code = lane_index() % 16;
    const auto square = static_cast<float>((code + 1) * (code + 1));
#pragma unroll
    for (int i = 0; i < kWarpKSteps / 2; ++i) {
      const int p = 2 * i + lane_index() / 16;
      tables_.scales[p][code] =
          __half2float(__float2half_rn(square * group_scales[p])) * (1.0f / kCodeOne);
    }
  }

  // Adds Σx, as a product with codes 1. A k_step's activations of two token tiles are the rows of
  // one operand A; every column of the result is the sum, of token lane / 4 in sums[0], and of the
  // second tile's in sums[2].
  __device__ __forceinline__ void add_ones(int p, float (&sums)[4]) {
    constexpr std::uint32_t kOne = 0x00010001u;
    const uint4& first = x_[p][0];
    const uint4& second = x_[p][TokenTiles - 1];
    const std::uint32_t lower[4] = {first.x, second.x, first.y, second.y};
    const std::uint32_t upper[4] = {first.z, second.z, first.w, second.w};
    mma_16x8x16(sums, lower, kOne, kOne);
    mma_16x8x16(sums, upper, kOne << 4, kOne << 4);
  }
  // Lanes of a token share the stores.
  __device__ __forceinline__ void store_sums(int begin, float factor, const float (&sums)[4]) {
    const int lane = lane_index();
    const int token = lane / 4;
    const int tile = lane % 4 / 2;
    const float sum = (tile == 0 ? sums[0] : sums[2]) * factor;
    if (tile < TokenTiles) {
      reinterpret_cast<float*>(&tables_.sums[begin][tile][token / 2])[lane % 2 * 2 + token % 2] =
          sum;
    }
  }

  __device__ __forceinline__ LaneScales lane_scales(int p, int n_tile) const {
    const int lane = lane_index();
    const std::byte* scales = scales_ + n_tile * stride_;
    if constexpr (kGptq) {
      const int bytes = kZeros ? scale_bytes_ : cuda::scale_bytes(kKind);
      const ScaleKind kind = kZeros ? kind_ : kKind;
      return GptqScales(kind, base_, 1.0f / kCodeOne).of(scales + p * bytes, lane);
    } else {
      const auto codes = static_cast<std::uint32_t>(scales[p * 8 + lane / 4]);
      return {{tables_.scales[p][codes & 15u], tables_.scales[p][codes >> 4]}, {0.0f, 0.0f}};
    }
  }

  // Loads this lane's entry of the table.
  __device__ __forceinline__ void load_sums(int p, int tile, float (&sums)[4]) const {
    const float4 x = tables_.sums[p][tile][lane_index() % 4];
    sums[0] = x.x, sums[1] = x.y, sums[2] = x.z, sums[3] = x.w;
  }
  // Starts a k_block's sums with what its zero point subtracts. kAdd: adds that to the sums so far
  // times 16, which are those of the high nibbles.
  template <bool kAdd>
  __device__ __forceinline__ void begin_k_block(int p) {
#pragma unroll
    for (int i = 0; i < NTiles; ++i)
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n) {
        float begin[4] = {};
        if constexpr (!kZeros) load_sums(p, n, begin);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          sums_[i][n][c] = kAdd ? sums_[i][n][c] * 16.0f + begin[c] : begin[c];
        }
      }
  }
  // `whole`: false for a k_step that is not its k_block's last, for which the table has no Σx.
  __device__ __forceinline__ void end_k_block(int p, bool whole = true) {
#pragma unroll
    for (int i = 0; i < NTiles; ++i) {
      const LaneScales scales = lane_scales(p, i);
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n) {
        float x[4] = {};
        if (kZeros && whole) load_sums(p, n, x);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float sum = kZeros ? sums_[i][n][c] - scales.zero[c / 2] * x[c] : sums_[i][n][c];
          totals[i][n][c] += scales.scale[c / 2] * sum;
        }
      }
    }
  }

  template <int Bits>
  __device__ __forceinline__ void multiply_k_step(const std::byte* k_step,
                                                  const uint4 (&x)[TokenTiles]) {
    CodeFragment<Bits> codes[NTiles];
#pragma unroll
    for (int i = 0; i < NTiles; ++i) codes[i].load(k_step + i * stride_, lane_index());
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int i = 0; i < NTiles; ++i) {
        const std::uint32_t a[4] = {codes[i].pair(0, 0, s), codes[i].pair(1, 0, s),
                                    codes[i].pair(0, 1, s), codes[i].pair(1, 1, s)};
#pragma unroll
        for (int n = 0; n < TokenTiles; ++n) {
          mma_16x8x16(sums_[i][n], a, s == 0 ? x[n].x : x[n].z, s == 0 ? x[n].y : x[n].w);
        }
      }
    }
  }

  // Multiplies a k_step of 8 bits as if it were a k_block: its high nibbles, then its low ones, so
  // that scales are looked up once.
  template <int Quad>
  __device__ __forceinline__ void multiply_wide_k_step(int k_step, const std::byte* codes) {
    const int p = Quad * kQuadKSteps + k_step;
    clear(sums_);
    multiply_k_step<4>(codes, x_[p]);
    if (begins_k_block(info_[Quad], k_step)) {
      begin_k_block<true>(p);
    } else {
#pragma unroll
      for (int i = 0; i < NTiles; ++i)
#pragma unroll
        for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
          for (int c = 0; c < 4; ++c) sums_[i][n][c] *= 16.0f;
    }
    multiply_k_step<4>(codes + k_step_bytes(4), x_[p]);
    end_k_block(p, !kZeros || ends_k_block(info_[Quad], k_step));
  }

  // Multiplies four k_steps of equal width.
  template <int Quad, int Bits, bool kWhole>
  __device__ __forceinline__ void multiply_equal(const std::byte* codes) {
#pragma unroll
    for (int u = 0; u < kQuadKSteps; ++u) {
      const int p = Quad * kQuadKSteps + u;
      const std::byte* k_step = codes + u * k_step_bytes(Bits);
      if constexpr (Bits == 8) {
        multiply_wide_k_step<Quad>(u, k_step);
      } else {
        if (kWhole ? u == 0 : begins_k_block(info_[Quad], u)) begin_k_block<false>(p);
        multiply_k_step<Bits>(k_step, x_[p]);
        if (kWhole ? u + 1 == kQuadKSteps : ends_k_block(info_[Quad], u)) end_k_block(p);
      }
    }
  }

  // Whether quads of one width that are not one whole k_block have their own code. With a single
  // width in the kernel that costs more than it saves, and beside 8 bits too
  // (bench/ladder/gemm_skinny.md).
  static constexpr bool kHasCutQuads =
      !has_width(kWidths, 8) && (kWidths & (kWidths - 1)) != 0;  // several widths

  template <int Quad, int Bits>
  __device__ __forceinline__ bool multiply_if_equal(const std::byte* codes) {
    if constexpr (has_width(kWidths, Bits)) {
      const bool whole = info_[Quad] == info_of_whole(Bits);
      const bool equal =
          kHasCutQuads || Bits == 8 ? (info_[Quad] & 0xffffu) == info_of_bits(Bits) : whole;
      if (!equal) return false;
      if (Bits != 8 && (!kHasCutQuads || whole)) {
        multiply_equal<Quad, Bits, true>(codes);
      } else {
        multiply_equal<Quad, Bits, false>(codes);
      }
      return true;
    }
    return false;
  }

  // Multiplies k_steps of any widths; all k_steps of a k_block have one width.
  template <int Quad>
  __device__ __forceinline__ void multiply_mixed(const std::byte* codes) {
#pragma unroll
    for (int u = 0; u < kQuadKSteps; ++u) {
      const int p = Quad * kQuadKSteps + u;
      const int bits = k_step_bits(info_[Quad], u);
      if (bits == 0) break;
      if (has_width(kWidths, 8) && bits == 8) {
        multiply_wide_k_step<Quad>(u, codes);
      } else {
        if (begins_k_block(info_[Quad], u)) begin_k_block<false>(p);
        multiply_any(bits, codes, x_[p]);
        if (ends_k_block(info_[Quad], u)) end_k_block(p);
      }
      codes += k_step_bytes(bits);
    }
  }
  __device__ __forceinline__ void multiply_any(int bits, const std::byte* k_step,
                                               const uint4 (&x)[TokenTiles]) {
    if (is_width<4, kWidths>(bits)) {
      if constexpr (has_width(kWidths, 4)) multiply_k_step<4>(k_step, x);
    } else if (is_width<5, kWidths>(bits)) {
      if constexpr (has_width(kWidths, 5)) multiply_k_step<5>(k_step, x);
    } else if (is_width<6, kWidths>(bits)) {
      if constexpr (has_width(kWidths, 6)) multiply_k_step<6>(k_step, x);
    } else if (is_width<3, kWidths>(bits)) {
      if constexpr (has_width(kWidths, 3)) multiply_k_step<3>(k_step, x);
    } else if constexpr (has_width(kWidths, 2)) {
      multiply_k_step<2>(k_step, x);
    }
  }

  // Multiplies a quad and returns where the next one's codes are.
  template <int Quad>
  __device__ __forceinline__ const std::byte* multiply_quad(const std::byte* codes) {
    if (multiply_if_equal<Quad, 4>(codes)) return codes + kQuadKSteps * k_step_bytes(4);
    if (multiply_if_equal<Quad, 5>(codes)) return codes + kQuadKSteps * k_step_bytes(5);
    if (multiply_if_equal<Quad, 3>(codes)) return codes + kQuadKSteps * k_step_bytes(3);
    if (multiply_if_equal<Quad, 2>(codes)) return codes + kQuadKSteps * k_step_bytes(2);
    if (multiply_if_equal<Quad, 6>(codes)) return codes + kQuadKSteps * k_step_bytes(6);
    if (multiply_if_equal<Quad, 8>(codes)) return codes + kQuadKSteps * k_step_bytes(8);
    multiply_mixed<Quad>(codes);
    if (Quad + 1 == kWarpQuads) return codes;
    int bits = 0;
#pragma unroll
    for (int u = 0; u < kQuadKSteps; ++u) bits += k_step_bits(info_[Quad], u);
    return codes + k_step_bytes(1) * bits;
  }

  RegsTables<TokenTiles>& tables_;
  uint4 x_[kWarpKSteps][TokenTiles];
  // Until the activations are loaded: rows of the k_steps, this lane's tokens, and their
  // row_absmax.
  std::uint32_t rows_[kWarpKSteps];
  std::uint32_t tokens_[TokenTiles];
  float row_scales_[TokenTiles];
  float sums_[NTiles][TokenTiles][4];
  std::uint32_t info_[kWarpQuads];
  const std::byte* scales_ = nullptr;
  int stride_ = 0;
  int scale_bytes_ = 8;
  ScaleKind kind_ = ScaleKind::kExl2;
  float base_ = 0.0f;
};

#endif

}  // namespace bl::cuda
