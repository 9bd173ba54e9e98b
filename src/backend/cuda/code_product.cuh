#pragma once
// One warp's share of a product on packed codes: decode in registers, straight into the A operand
// of the tensor cores (code_matrix.h says how codes lie and why). Columns of the matrix are the
// rows of the product, tokens its columns.
//
// Codes enter as subnormal halves, code · 2^-24, which tensor cores multiply exactly; scales and
// zero points are applied to F32 sums at the end of a chunk.

#include <cuda_fp16.h>

#include "backend/cuda/code_matrix.h"
#include "backend/cuda/mma.cuh"

namespace bl::cuda {

inline constexpr float kCodeUnit = 0x1p-24f;  // what code 1 weighs in a sum
inline constexpr int kTokenTile = 8;

// Sums of 64 columns × 8 · Tiles tokens: [tile][i][c]; element c of lane 4g + t is column
// 16i + 8 (c / 2) + g, token 2t + c % 2.
template <int Tiles>
struct Sums {
  float at[Tiles][4][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c) at[n][i][c] = 0.0f;
  }
};

// Activations of one matrix as prepared (prepare.cu).
struct Fragments {
  const uint4* x = nullptr;  // [tiles][8 tokens][units][4], a lane's B operands of a unit
  std::int32_t units = 0;
};

__device__ __forceinline__ std::uint32_t shifted(std::uint32_t word, int right) {
  return right >= 0 ? word >> right : word << -right;
}

// The codes of one lane and unit, planes as loaded.
template <int Bits>
struct UnitCodes;

template <>
struct UnitCodes<4> {
  std::uint32_t w[8];
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    const uint4 a = *reinterpret_cast<const uint4*>(unit + lane * 16);
    const uint4 b = *reinterpret_cast<const uint4*>(unit + 512 + lane * 16);
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w;
    w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
  }
  __device__ __forceinline__ std::uint32_t pair(int i, int h, int r, int s) const {
    return (w[2 * i + h] >> (8 * r)) & (s == 0 ? 0x000f000fu : 0x00f000f0u);
  }
};

template <>
struct UnitCodes<2> {
  std::uint32_t w[4];
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    const uint4 a = *reinterpret_cast<const uint4*>(unit + lane * 16);
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w;
  }
  __device__ __forceinline__ std::uint32_t pair(int i, int h, int r, int s) const {
    return (w[i] >> (8 * r + 2 * h)) & (s == 0 ? 0x00030003u : 0x00300030u);
  }
};

template <>
struct UnitCodes<6> {
  UnitCodes<4> low;
  UnitCodes<2> high;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    low.load(unit, lane);
    high.load(unit + 1024, lane);
  }
  __device__ __forceinline__ std::uint32_t pair(int i, int h, int r, int s) const {
    const std::uint32_t top =
        shifted(high.w[i], 8 * r + 2 * h - 4) & (s == 0 ? 0x00300030u : 0x03000300u);
    return low.pair(i, h, r, s) | top;
  }
};

template <>
struct UnitCodes<5> {
  UnitCodes<4> low;
  std::uint32_t w[2];
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    low.load(unit, lane);
    const uint2 a = *reinterpret_cast<const uint2*>(unit + 1024 + lane * 8);
    w[0] = a.x, w[1] = a.y;
  }
  __device__ __forceinline__ std::uint32_t pair(int i, int h, int r, int s) const {
    const std::uint32_t top =
        shifted(w[i / 2], 8 * r + 2 * h + i % 2 - 4) & (s == 0 ? 0x00100010u : 0x01000100u);
    return low.pair(i, h, r, s) | top;
  }
};

template <>
struct UnitCodes<3> {
  UnitCodes<2> low;
  std::uint32_t w[2];
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    low.load(unit, lane);
    const uint2 a = *reinterpret_cast<const uint2*>(unit + 512 + lane * 8);
    w[0] = a.x, w[1] = a.y;
  }
  __device__ __forceinline__ std::uint32_t pair(int i, int h, int r, int s) const {
    const std::uint32_t top =
        shifted(w[i / 2], 8 * r + 2 * h + i % 2 - 2) & (s == 0 ? 0x00040004u : 0x00400040u);
    return low.pair(i, h, r, s) | top;
  }
};

// sums += codes · x over one unit. `x` is this lane's place in the unit of the first tile.
template <int Tiles, class Codes>
__device__ __forceinline__ void multiply_unit(const Codes& codes, const uint4 (&x)[Tiles],
                                              Sums<Tiles>& sums) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const std::uint32_t a[4] = {codes.pair(i, 0, 0, s), codes.pair(i, 1, 0, s),
                                  codes.pair(i, 0, 1, s), codes.pair(i, 1, 1, s)};
#pragma unroll
      for (int n = 0; n < Tiles; ++n) {
        mma_16x8x16(sums.at[n][i], a, s == 0 ? x[n].x : x[n].z, s == 0 ? x[n].y : x[n].w);
      }
    }
  }
}

// Where a lane finds its activations.
template <int Tiles>
struct LaneInput {
  const uint4* x[Tiles];
  bool live[Tiles];  // the lane's token exists

  __device__ __forceinline__ void open(const Fragments& f, int first_tile, int tokens, int lane) {
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      const int token = (first_tile + n) * kTokenTile + lane / 4;
      live[n] = token < tokens;
      x[n] = f.x + static_cast<std::int64_t>(token) * f.units * 4 + lane % 4;
    }
  }
  // Of `Units` units from `first` on.
  template <int Units>
  __device__ __forceinline__ void load(int first, uint4 (&to)[Units][Tiles]) const {
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      const uint4* from = x[n] + first * 4;
#pragma unroll
      for (int u = 0; u < Units; ++u) {
        to[u][n] = make_uint4(0, 0, 0, 0);
        if (live[n]) to[u][n] = from[u * 4];
      }
    }
  }
};

// Products of one chunk, in units of kCodeUnit.
template <int Tiles>
struct ChunkSums {
  Sums<Tiles> codes;
  float x[Tiles][4];  // Σx of this lane's tokens 2t (even elements) and 2t + 1
  __device__ __forceinline__ void clear() {
    codes.clear();
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) x[n][c] = 0.0f;
  }
};

// One unit: codes · x, and what zero points need: the sum of x, by a matrix of codes 1.
template <int Tiles, class Codes>
__device__ __forceinline__ void add_unit(const Codes& codes, const uint4 (&x)[Tiles],
                                         ChunkSums<Tiles>& sums) {
  multiply_unit(codes, x, sums.codes);
  constexpr std::uint32_t kOne = 0x00010001u;
  const std::uint32_t first[4] = {kOne, kOne, kOne, kOne};
  const std::uint32_t second[4] = {kOne << 4, kOne << 4, kOne << 4, kOne << 4};
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
    mma_16x8x16(sums.x[n], first, x[n].x, x[n].y);
    mma_16x8x16(sums.x[n], second, x[n].z, x[n].w);
  }
}

// All units of a chunk whose codes have `Bits` bits; `stride` bytes apart, so that a plane of wider
// ones can be taken. `arrived()` gives the codes and may wait for them.
template <int Bits, int Units, int Tiles, class Arrived>
__device__ __forceinline__ void add_units(const Chunk& chunk, const LaneInput<Tiles>& input,
                                          const Arrived& arrived, ChunkSums<Tiles>& sums) {
  constexpr int kStride =
      Units == full_chunk_units(8) && Bits == 4 ? unit_bytes(8) : unit_bytes(Bits);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (chunk.units == Units) {
    uint4 x[Units][Tiles];
    input.load(chunk.first_unit, x);
    const std::byte* codes = arrived();
#pragma unroll
    for (int u = 0; u < Units; ++u) {
      UnitCodes<Bits> unit;
      unit.load(codes + u * kStride, lane);
      add_unit(unit, x[u], sums);
    }
    return;
  }
  const std::byte* codes = arrived();
#pragma unroll 1
  for (int u = 0; u < chunk.units; ++u) {  // the rest of a group
    uint4 x[1][Tiles];
    input.load(chunk.first_unit + u, x);
    UnitCodes<Bits> unit;
    unit.load(codes + u * kStride, lane);
    add_unit(unit, x[0], sums);
  }
}

// sums = codes · x over one chunk.
template <int Tiles, class Arrived>
__device__ __forceinline__ void multiply_chunk(const Chunk& chunk, const LaneInput<Tiles>& input,
                                               const Arrived& arrived, ChunkSums<Tiles>& sums) {
  sums.clear();
  switch (chunk.bits) {
    case 2:
      add_units<2, full_chunk_units(2)>(chunk, input, arrived, sums);
      break;
    case 3:
      add_units<3, full_chunk_units(3)>(chunk, input, arrived, sums);
      break;
    case 4:
      add_units<4, full_chunk_units(4)>(chunk, input, arrived, sums);
      break;
    case 5:
      add_units<5, full_chunk_units(5)>(chunk, input, arrived, sums);
      break;
    case 6:
      add_units<6, full_chunk_units(6)>(chunk, input, arrived, sums);
      break;
    default:  // 8: the high nibbles, times 16, then the low ones
      add_units<4, full_chunk_units(8)>(chunk, input, arrived, sums);
#pragma unroll
      for (int n = 0; n < Tiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            sums.codes.at[n][i][c] *= 16.0f;
            sums.x[n][c] = 0.0f;
          }
      add_units<4, full_chunk_units(8)>(
          chunk, input, [&] { return arrived() + 1024; }, sums);
  }
}

// Scales and zero points of this lane's eight columns in one group.
struct LaneScales {
  float scale[8];  // of entry 2i + h, divided by kCodeUnit
  float zero[8];

  // `scales`: the strip's entry of the group.
  __device__ __forceinline__ void load_exl2(const std::byte* scales, const Chunk& chunk, int lane) {
    const float square = static_cast<float>((lane % 16 + 1) * (lane % 16 + 1));
    const float mine =
        __half2float(__float2half_rn(square * chunk.group_scale)) * (1.0f / kCodeUnit);
    const std::uint32_t codes = reinterpret_cast<const std::uint32_t*>(scales)[lane / 4];
    const float centre = static_cast<float>(1 << (chunk.bits - 1));
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      scale[e] = __shfl_sync(0xffffffffu, mine, static_cast<int>(codes >> (4 * e)), 16);
      zero[e] = centre;  // one register: all are equal
    }
  }
  __device__ __forceinline__ void load_gptq(const CodeMatrixView& m, const std::byte* scales,
                                            int lane) {
    const int g = lane / 4;
    const auto* halves = reinterpret_cast<const __half*>(scales) + 8 * g;
    const float base = static_cast<float>(m.zero);
    const std::uint32_t nibbles = m.kind == ScaleKind::kGptqZeros4
                                      ? reinterpret_cast<const std::uint32_t*>(scales)[32 + g]
                                      : 0u;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      scale[e] = __half2float(halves[e]) * (1.0f / kCodeUnit);
      float z = base + static_cast<float>(nibbles >> (4 * e) & 15u);
      if (m.kind == ScaleKind::kGptqZeros16) {
        z = static_cast<float>(reinterpret_cast<const std::uint16_t*>(scales)[64 + 8 * g + e]);
      }
      zero[e] = z;
    }
  }
  __device__ __forceinline__ void load(const CodeMatrixView& m, const std::byte* scales,
                                       const Chunk& chunk, int lane) {
    if (m.kind == ScaleKind::kExl2) {
      load_exl2(scales, chunk, lane);
    } else {
      load_gptq(m, scales, lane);
    }
  }
};

// totals += scale · (sums − zero · Σx) of one chunk.
template <int Tiles>
__device__ __forceinline__ void apply_scales(const LaneScales& scales, const ChunkSums<Tiles>& sums,
                                             Sums<Tiles>& totals) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int e = 2 * i + c / 2;
#pragma unroll
      for (int n = 0; n < Tiles; ++n) {
        totals.at[n][i][c] +=
            scales.scale[e] * (sums.codes.at[n][i][c] - scales.zero[e] * sums.x[n][c % 2]);
      }
    }
  }
}

}  // namespace bl::cuda
