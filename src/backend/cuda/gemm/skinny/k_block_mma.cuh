#pragma once
// One warp's part of a product on packed codes: decode in registers, straight into the A operand of
// the tensor cores (code_matrix.h says how codes lie and why). Columns of the matrix are the rows
// of the product, tokens its columns.
//
// Codes enter as subnormal halves, code · 2^-24, which tensor cores multiply exactly; scales and
// zero points are applied to F32 sums at the end of a chunk.
//
// A warp multiplies the same chunk of several strips at once: they share the activations, and give
// the tensor cores independent sums.

#include <cuda_fp16.h>

#include <type_traits>

#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

// Where kWidths has kBits and nothing else, nobody has to look.
template <int kBits, WidthSet kWidths>
__device__ __forceinline__ bool is_width(int bits) {
  return has_width(kWidths, kBits) && (kWidths == 1u << kBits || bits == kBits);
}

inline constexpr float kCodeOne = 0x1p-24f;  // what code 1 weighs in a sum
inline constexpr int kTokenTile = 8;

// Sums of Strips · 16 columns × 8 · Tiles tokens; element c of lane 4g + t is column 8 (c / 2) + g
// of its strip, token 2t + c % 2 of its tile.
template <int NTiles, int TokenTiles>
struct Sums {
  float at[NTiles][TokenTiles][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int s = 0; s < NTiles; ++s)
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) at[s][n][c] = 0.0f;
  }
};

__device__ __forceinline__ std::uint32_t shifted(std::uint32_t word, int right) {
  return right >= 0 ? word >> right : word << -right;
}

// The codes of one lane and unit, planes as loaded. pair(h, r, s) is one register of the A operand:
// the codes of slots e = 0, 1 as subnormal halves, 16 times too large where s = 1. `beside`: bits
// that are none of a code's, put there too, for which no instruction is needed.
template <int Bits>
struct CodeFragment;

template <>
struct CodeFragment<4> {
  std::uint32_t w[2];
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    const uint2 a = reinterpret_cast<const uint2*>(k_step)[lane];
    w[0] = a.x, w[1] = a.y;
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return ((w[h] >> (8 * r)) & (s == 0 ? 0x000f000fu : 0x00f000f0u)) | beside;
  }
};

template <>
struct CodeFragment<2> {
  std::uint32_t w;
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    w = reinterpret_cast<const std::uint32_t*>(k_step)[lane];
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return ((w >> (8 * r + 2 * h)) & (s == 0 ? 0x00030003u : 0x00300030u)) | beside;
  }
};

template <>
struct CodeFragment<3> {
  std::uint32_t w;
  CodeFragment<2> partial;  // the lower bits of h = 1, where a unit of two bits has those of h = 0
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(k_step);
    w = words[lane];
    partial.w = words[low_words(3) + lane / 2] >> (lane % 2 * 2);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    if (h == 0) return ((w >> (8 * r)) & (s == 0 ? 0x00070007u : 0x00700070u)) | beside;
    return ((w >> (8 * r + 1)) & (s == 0 ? 0x00040004u : 0x00400040u)) |
           partial.pair(0, r, s, beside);
  }
};

template <>
struct CodeFragment<5> {
  CodeFragment<4> low;
  std::uint32_t top;  // the highest bits, as the lowest ones lie in a unit of two bits
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    low.load(k_step, lane);
    top = reinterpret_cast<const std::uint32_t*>(k_step)[low_words(5) + lane / 2] >> (lane % 2);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return low.pair(h, r, s) |
           ((shifted(top, 8 * r + 2 * h - 4) & (s == 0 ? 0x00100010u : 0x01000100u)) | beside);
  }
};

template <>
struct CodeFragment<6> {
  CodeFragment<4> low;
  CodeFragment<2> high;
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    low.load(k_step, lane);
    high.load(k_step + 256, lane);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return low.pair(h, r, s) |
           ((shifted(high.w, 8 * r + 2 * h - 4) & (s == 0 ? 0x00300030u : 0x03000300u)) | beside);
  }
};

// Products of one chunk, in units of kCodeOne.
template <int NTiles, int TokenTiles>
struct KBlockSums {
  Sums<NTiles, TokenTiles> codes;
  // Σx of this lane's tokens 2t (even elements) and 2t + 1.
  float x[TokenTiles][4];
  __device__ __forceinline__ void clear() {
    codes.clear();
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) x[n][c] = 0.0f;
  }
};

// Where the codes of a chunk lie, strip by strip. Strips beyond the last one are multiplied like
// it, and the results are not used: cheaper than a branch for each.
struct KBlockCodes {
  const std::byte* first = nullptr;  // of the first strip
  int stride = 0;                    // to the next one's, bytes
  int n_tiles = 0;                   // that may be read, at least one
  __device__ __forceinline__ const std::byte* n_tile(int i) const {
    return first + min(i, n_tiles - 1) * stride;
  }
};

// Σx of a chunk in units of kCodeOne, of a lane's tokens 2t and 2t + 1 of each tile.
template <int TokenTiles>
struct InputSum {
  float2 at[TokenTiles];
};

// A lane's operands of one unit: registers 2s + r hold the slots 16s + 8r + 2t + e of token g.
template <int TokenTiles>
struct KStepInput {
  uint4 x[TokenTiles];
};

// Σx by a matrix of codes 1.
template <int NTiles, int TokenTiles>
__device__ __forceinline__ void add_input(const KStepInput<TokenTiles>& in,
                                          KBlockSums<NTiles, TokenTiles>& sums) {
  constexpr std::uint32_t kOne = 0x00010001u;
  const std::uint32_t first[4] = {kOne, kOne, kOne, kOne};
  const std::uint32_t second[4] = {kOne << 4, kOne << 4, kOne << 4, kOne << 4};
#pragma unroll
  for (int n = 0; n < TokenTiles; ++n) {
    mma_16x8x16(sums.x[n], first, in.x[n].x, in.x[n].y);
    mma_16x8x16(sums.x[n], second, in.x[n].z, in.x[n].w);
  }
}

// sums += codes · x over one unit. kAddInput: Σx too.
template <int Bits, int Stride, bool kAddInput, int NTiles, int TokenTiles>
__device__ __forceinline__ void add_k_step(const KBlockCodes& codes, int k_step,
                                           const KStepInput<TokenTiles>& in,
                                           KBlockSums<NTiles, TokenTiles>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < NTiles; ++i) {
    CodeFragment<Bits> k_step_codes;
    k_step_codes.load(codes.n_tile(i) + k_step * Stride, lane);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const std::uint32_t a[4] = {k_step_codes.pair(0, 0, s), k_step_codes.pair(1, 0, s),
                                  k_step_codes.pair(0, 1, s), k_step_codes.pair(1, 1, s)};
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n) {
        mma_16x8x16(sums.codes.at[i][n], a, s == 0 ? in.x[n].x : in.x[n].z,
                    s == 0 ? in.x[n].y : in.x[n].w);
      }
    }
  }
  if constexpr (kAddInput) add_input(in, sums);
}

// All units of a chunk whose codes have `Bits` bits, `Stride` bytes apart, so that a plane of wider
// ones can be taken. `input(unit)`: the operands of a unit of the strip.
template <int Bits, int Stride, int NTiles, int TokenTiles, class Input>
__device__ __forceinline__ void add_k_steps(const KBlock& k_block, const KBlockCodes& codes,
                                            const Input& input,
                                            KBlockSums<NTiles, TokenTiles>& sums) {
  if (k_block.k_steps == kMaxKBlockSteps) {
#pragma unroll
    for (int u = 0; u < kMaxKBlockSteps; ++u) {
      add_k_step<Bits, Stride, !Input::kHasSums>(codes, u, input(k_block.first_k_step + u), sums);
    }
    return;
  }
#pragma unroll 1
  for (int u = 0; u < k_block.k_steps; ++u) {  // small groups, or the rest of one
    add_k_step<Bits, Stride, !Input::kHasSums>(codes, u, input(k_block.first_k_step + u), sums);
  }
}

// sums = codes · x over one chunk. An input has Σx of its chunks, or they are found on the way.
// kWidths: those that there may be.
template <WidthSet kWidths, int NTiles, int TokenTiles, class Input>
__device__ __forceinline__ void multiply_k_block(const KBlock& k_block, const KBlockCodes& codes,
                                                 const Input& input,
                                                 KBlockSums<NTiles, TokenTiles>& sums) {
  sums.clear();
  typename Input::KBlockSum x;
  if constexpr (Input::kHasSums) x = input.sum(k_block);
  const auto add = [&]<int kBits>(std::integral_constant<int, kBits>) {
    if constexpr (has_width(kWidths, kBits)) {
      add_k_steps<kBits, k_step_bytes(kBits)>(k_block, codes, input, sums);
    }
  };
  if (is_width<4, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 4>{});
  } else if (is_width<5, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 5>{});
  } else if (is_width<6, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 6>{});
  } else if (is_width<3, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 3>{});
  } else if (is_width<2, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 2>{});
  } else if constexpr (has_width(kWidths, 8)) {  // the high nibbles, times 16, then the low ones
    add_k_steps<4, k_step_bytes(8)>(k_block, codes, input, sums);
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        sums.x[n][c] = 0.0f;
#pragma unroll
        for (int i = 0; i < NTiles; ++i) sums.codes.at[i][n][c] *= 16.0f;
      }
    add_k_steps<4, k_step_bytes(8)>(
        k_block, {codes.first + k_step_bytes(4), codes.stride, codes.n_tiles}, input, sums);
  }
  if constexpr (Input::kHasSums) {
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) sums.x[n][0] = x.at[n].x, sums.x[n][1] = x.at[n].y;
  }
}

// Scale and zero point of this lane's two columns (h = 0, 1) in one strip and group.
struct LaneScales {
  float scale[2];
  float zero[2];
};

// The scales of one chunk's group: what all strips share, then strip by strip. They come multiplied
// by `factor`.
struct ExlScales {
  __device__ static constexpr int bytes(ScaleKind) { return scale_bytes(ScaleKind::kExl2); }
  float of_code;  // of code `lane % 16`
  float centre;
  __device__ __forceinline__ ExlScales(const CodeMatrixView&, const KBlock& k_block, int lane,
                                       float factor) {
    const float square = static_cast<float>((lane % 16 + 1) * (lane % 16 + 1));
    of_code = __half2float(__float2half_rn(square * k_block.group_scale)) * factor;
    centre = __uint_as_float((126u + k_block.bits) << 23);  // 2^(bits - 1)
  }
  // `scales`: of the strip and group. All lanes take part.
  __device__ __forceinline__ LaneScales of(const std::byte* scales, int lane) const {
    const int codes = static_cast<int>(scales[lane / 4]);
    return {{__shfl_sync(0xffffffffu, of_code, codes, 16),
             __shfl_sync(0xffffffffu, of_code, codes >> 4, 16)},
            {centre, centre}};
  }
};

struct GptqScales {
  __device__ static int bytes(ScaleKind kind) { return scale_bytes(kind); }
  ScaleKind kind;
  float base;
  float factor;
  __device__ __forceinline__ GptqScales(ScaleKind of, float zero, float times)
      : kind(of), base(zero), factor(times) {}
  __device__ __forceinline__ GptqScales(const CodeMatrixView& m, const KBlock&, int, float times)
      : GptqScales(m.kind, static_cast<float>(m.zero), times) {}
  __device__ __forceinline__ LaneScales of(const std::byte* scales, int lane) const {
    const int g = lane / 4;
    const float2 halves = __half22float2(reinterpret_cast<const __half2*>(scales)[g]);
    LaneScales result{{halves.x * factor, halves.y * factor}, {base, base}};
    if (kind == ScaleKind::kGptqZeros4) {
      const auto codes = static_cast<std::uint32_t>(scales[32 + g]);
      result.zero[0] += static_cast<float>(codes & 15u);
      result.zero[1] += static_cast<float>(codes >> 4);
    } else if (kind == ScaleKind::kGptqZeros16) {
      const ushort2 zeros = reinterpret_cast<const ushort2*>(scales + 32)[g];
      result.zero[0] = static_cast<float>(zeros.x);
      result.zero[1] = static_cast<float>(zeros.y);
    }
    return result;
  }
};

// The same of kGptq alone: the compiler knows what is not there.
struct PlainGptqScales : GptqScales {
  __device__ static constexpr int bytes(ScaleKind) { return scale_bytes(ScaleKind::kGptq); }
  __device__ __forceinline__ PlainGptqScales(const CodeMatrixView& m, const KBlock&, int,
                                             float times)
      : GptqScales(ScaleKind::kGptq, static_cast<float>(m.zero), times) {}
};

// totals += scale · (sums − zero · Σx) of one strip of a chunk.
template <int NTiles, int TokenTiles>
__device__ __forceinline__ void apply_scales(const LaneScales& scales, int n_tile,
                                             const KBlockSums<NTiles, TokenTiles>& sums,
                                             Sums<NTiles, TokenTiles>& totals) {
#pragma unroll
  for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      totals.at[n_tile][n][c] += scales.scale[c / 2] * (sums.codes.at[n_tile][n][c] -
                                                        scales.zero[c / 2] * sums.x[n][c % 2]);
    }
}

}  // namespace bl::cuda
