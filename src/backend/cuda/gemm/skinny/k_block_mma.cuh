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

inline constexpr float kCodeUnit = 0x1p-24f;  // what code 1 weighs in a sum
inline constexpr int kTokenTile = 8;

// Sums of Strips · 16 columns × 8 · Tiles tokens; element c of lane 4g + t is column 8 (c / 2) + g
// of its strip, token 2t + c % 2 of its tile.
template <int Strips, int Tiles>
struct Sums {
  float at[Strips][Tiles][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int s = 0; s < Strips; ++s)
#pragma unroll
      for (int n = 0; n < Tiles; ++n)
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
struct UnitCodes;

template <>
struct UnitCodes<4> {
  std::uint32_t w[2];
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    const uint2 a = reinterpret_cast<const uint2*>(unit)[lane];
    w[0] = a.x, w[1] = a.y;
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return ((w[h] >> (8 * r)) & (s == 0 ? 0x000f000fu : 0x00f000f0u)) | beside;
  }
};

template <>
struct UnitCodes<2> {
  std::uint32_t w;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    w = reinterpret_cast<const std::uint32_t*>(unit)[lane];
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return ((w >> (8 * r + 2 * h)) & (s == 0 ? 0x00030003u : 0x00300030u)) | beside;
  }
};

template <>
struct UnitCodes<3> {
  std::uint32_t w;
  UnitCodes<2> rest;  // the lower bits of h = 1, where a unit of two bits has those of h = 0
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(unit);
    w = words[lane];
    rest.w = words[low_words(3) + lane / 2] >> (lane % 2 * 2);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    if (h == 0) return ((w >> (8 * r)) & (s == 0 ? 0x00070007u : 0x00700070u)) | beside;
    return ((w >> (8 * r + 1)) & (s == 0 ? 0x00040004u : 0x00400040u)) | rest.pair(0, r, s, beside);
  }
};

template <>
struct UnitCodes<5> {
  UnitCodes<4> low;
  std::uint32_t top;  // the highest bits, as the lowest ones lie in a unit of two bits
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    low.load(unit, lane);
    top = reinterpret_cast<const std::uint32_t*>(unit)[low_words(5) + lane / 2] >> (lane % 2);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return low.pair(h, r, s) |
           ((shifted(top, 8 * r + 2 * h - 4) & (s == 0 ? 0x00100010u : 0x01000100u)) | beside);
  }
};

template <>
struct UnitCodes<6> {
  UnitCodes<4> low;
  UnitCodes<2> high;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    low.load(unit, lane);
    high.load(unit + 256, lane);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return low.pair(h, r, s) |
           ((shifted(high.w, 8 * r + 2 * h - 4) & (s == 0 ? 0x00300030u : 0x03000300u)) | beside);
  }
};

// Products of one chunk, in units of kCodeUnit.
template <int Strips, int Tiles>
struct ChunkSums {
  Sums<Strips, Tiles> codes;
  // Σx of this lane's tokens 2t (even elements) and 2t + 1.
  float x[Tiles][4];
  __device__ __forceinline__ void clear() {
    codes.clear();
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) x[n][c] = 0.0f;
  }
};

// Where the codes of a chunk lie, strip by strip. Strips beyond the last one are multiplied like
// it, and the results are not used: cheaper than a branch for each.
struct ChunkCodes {
  const std::byte* first = nullptr;  // of the first strip
  int stride = 0;                    // to the next one's, bytes
  int strips = 0;                    // that may be read, at least one
  __device__ __forceinline__ const std::byte* strip(int i) const {
    return first + min(i, strips - 1) * stride;
  }
};

// Σx of a chunk in units of kCodeUnit, of a lane's tokens 2t and 2t + 1 of each tile.
template <int Tiles>
struct InputSum {
  float2 at[Tiles];
};

// A lane's operands of one unit: registers 2s + r hold the slots 16s + 8r + 2t + e of token g.
template <int Tiles>
struct UnitInput {
  uint4 x[Tiles];
};

// Σx by a matrix of codes 1.
template <int Strips, int Tiles>
__device__ __forceinline__ void add_input(const UnitInput<Tiles>& in,
                                          ChunkSums<Strips, Tiles>& sums) {
  constexpr std::uint32_t kOne = 0x00010001u;
  const std::uint32_t first[4] = {kOne, kOne, kOne, kOne};
  const std::uint32_t second[4] = {kOne << 4, kOne << 4, kOne << 4, kOne << 4};
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
    mma_16x8x16(sums.x[n], first, in.x[n].x, in.x[n].y);
    mma_16x8x16(sums.x[n], second, in.x[n].z, in.x[n].w);
  }
}

// sums += codes · x over one unit. kAddInput: Σx too.
template <int Bits, int Stride, bool kAddInput, int Strips, int Tiles>
__device__ __forceinline__ void add_unit(const ChunkCodes& codes, int unit,
                                         const UnitInput<Tiles>& in,
                                         ChunkSums<Strips, Tiles>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < Strips; ++i) {
    UnitCodes<Bits> unit_codes;
    unit_codes.load(codes.strip(i) + unit * Stride, lane);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const std::uint32_t a[4] = {unit_codes.pair(0, 0, s), unit_codes.pair(1, 0, s),
                                  unit_codes.pair(0, 1, s), unit_codes.pair(1, 1, s)};
#pragma unroll
      for (int n = 0; n < Tiles; ++n) {
        mma_16x8x16(sums.codes.at[i][n], a, s == 0 ? in.x[n].x : in.x[n].z,
                    s == 0 ? in.x[n].y : in.x[n].w);
      }
    }
  }
  if constexpr (kAddInput) add_input(in, sums);
}

// All units of a chunk whose codes have `Bits` bits, `Stride` bytes apart, so that a plane of wider
// ones can be taken. `input(unit)`: the operands of a unit of the strip.
template <int Bits, int Stride, int Strips, int Tiles, class Input>
__device__ __forceinline__ void add_units(const Chunk& chunk, const ChunkCodes& codes,
                                          const Input& input, ChunkSums<Strips, Tiles>& sums) {
  if (chunk.units == kMaxChunkUnits) {
#pragma unroll
    for (int u = 0; u < kMaxChunkUnits; ++u) {
      add_unit<Bits, Stride, !Input::kHasSums>(codes, u, input(chunk.first_unit + u), sums);
    }
    return;
  }
#pragma unroll 1
  for (int u = 0; u < chunk.units; ++u) {  // small groups, or the rest of one
    add_unit<Bits, Stride, !Input::kHasSums>(codes, u, input(chunk.first_unit + u), sums);
  }
}

// sums = codes · x over one chunk. An input has Σx of its chunks, or they are found on the way.
// kWidths: those that there may be.
template <WidthSet kWidths, int Strips, int Tiles, class Input>
__device__ __forceinline__ void multiply_chunk(const Chunk& chunk, const ChunkCodes& codes,
                                               const Input& input, ChunkSums<Strips, Tiles>& sums) {
  sums.clear();
  typename Input::ChunkSum x;
  if constexpr (Input::kHasSums) x = input.sum(chunk);
  const auto add = [&]<int kBits>(std::integral_constant<int, kBits>) {
    if constexpr (has_width(kWidths, kBits)) {
      add_units<kBits, unit_bytes(kBits)>(chunk, codes, input, sums);
    }
  };
  if (is_width<4, kWidths>(chunk.bits)) {
    add(std::integral_constant<int, 4>{});
  } else if (is_width<5, kWidths>(chunk.bits)) {
    add(std::integral_constant<int, 5>{});
  } else if (is_width<6, kWidths>(chunk.bits)) {
    add(std::integral_constant<int, 6>{});
  } else if (is_width<3, kWidths>(chunk.bits)) {
    add(std::integral_constant<int, 3>{});
  } else if (is_width<2, kWidths>(chunk.bits)) {
    add(std::integral_constant<int, 2>{});
  } else if constexpr (has_width(kWidths, 8)) {  // the high nibbles, times 16, then the low ones
    add_units<4, unit_bytes(8)>(chunk, codes, input, sums);
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        sums.x[n][c] = 0.0f;
#pragma unroll
        for (int i = 0; i < Strips; ++i) sums.codes.at[i][n][c] *= 16.0f;
      }
    add_units<4, unit_bytes(8)>(chunk, {codes.first + unit_bytes(4), codes.stride, codes.strips},
                                input, sums);
  }
  if constexpr (Input::kHasSums) {
#pragma unroll
    for (int n = 0; n < Tiles; ++n) sums.x[n][0] = x.at[n].x, sums.x[n][1] = x.at[n].y;
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
  __device__ __forceinline__ ExlScales(const CodeMatrixView&, const Chunk& chunk, int lane,
                                       float factor) {
    const float square = static_cast<float>((lane % 16 + 1) * (lane % 16 + 1));
    of_code = __half2float(__float2half_rn(square * chunk.group_scale)) * factor;
    centre = __uint_as_float((126u + chunk.bits) << 23);  // 2^(bits - 1)
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
  __device__ __forceinline__ GptqScales(const CodeMatrixView& m, const Chunk&, int, float times)
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
  __device__ __forceinline__ PlainGptqScales(const CodeMatrixView& m, const Chunk&, int,
                                             float times)
      : GptqScales(ScaleKind::kGptq, static_cast<float>(m.zero), times) {}
};

// totals += scale · (sums − zero · Σx) of one strip of a chunk.
template <int Strips, int Tiles>
__device__ __forceinline__ void apply_scales(const LaneScales& scales, int strip,
                                             const ChunkSums<Strips, Tiles>& sums,
                                             Sums<Strips, Tiles>& totals) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      totals.at[strip][n][c] += scales.scale[c / 2] * (sums.codes.at[strip][n][c] -
                                                       scales.zero[c / 2] * sums.x[n][c % 2]);
    }
}

}  // namespace bl::cuda
