#pragma once
// One warp's part of the product of a single token with packed codes, in whole numbers.
//
// The activations of a chunk are 15-bit numbers times a power of two of their own; a number is two
// digits, 256 · high + low, of a signed byte each. Codes become the bytes of the A operand of
// mma.m16n8k32 by one mask a register, 16 times too large in the upper half of k (slots s = 1,
// code_matrix.h). The columns of B hold what one token leaves free: 0 and 1 the high and low digits
// of the slots s = 0, 2 and 3 those of the slots s = 1, zeros elsewhere; so lane 4g + t ends with
// the sums of the slots s = t, exact, and 32-bit sums cannot overflow within a chunk.

#include <type_traits>

#include "backend/cuda/code_product.cuh"
#include "backend/cuda/warp_reduce.cuh"

namespace bl::cuda {

// The largest number of a chunk is below 2^kDigitBits.
inline constexpr int kDigitBits = 14;

// What a token is made of: 128 bytes a unit. First its slots as floats, in the order of
// fragment_place; then, where these were, 64 bytes of digits: for s = 0, 1 a word a lane t of high
// ones, then of low ones; byte 2e + r of a word is the slot 16s + 8r + 2t + e. Behind the digits of
// a chunk's first unit, what they are worth.
inline constexpr int kInputUnitBytes = kUnitSlots * static_cast<int>(sizeof(float));
inline constexpr int kLowDigits = 16;  // bytes behind the high ones
BL_HD constexpr int digit_word(int s, int t) { return s * 32 + t * 4; }  // bytes from the unit's

struct ChunkWorth {
  float unit[2];  // of a number of the slots s, times their code's 16
  float sum[2];   // Σx of the chunk; zero for s = 1
  static constexpr int kAt = 2 * kUnitSlots;
  // A lane's: {unit[t], sum[t]}.
  __device__ __forceinline__ static float2 of_lane(const std::byte* unit, int lane) {
    return reinterpret_cast<const float2*>(unit + kAt)[lane % 2];
  }
  __device__ __forceinline__ void store(std::byte* to) const {
    *reinterpret_cast<float4*>(to + kAt) = make_float4(unit[0], sum[0], unit[1], sum[1]);
  }
};

// Sums of one chunk: element 2h + d of a strip is column 8h + g, digit d (0: high).
template <int Strips>
struct DigitSums {
  int at[Strips][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < Strips; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) at[i][c] = 0;
  }
  __device__ __forceinline__ void times16() {
#pragma unroll
    for (int i = 0; i < Strips; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) at[i][c] <<= 4;
  }
};

// Operands of codes of one or two bits (`mask`: of a code in every byte), where bit 4s + 2h of a
// byte is a code's lowest.
__device__ __forceinline__ void split_bytes(std::uint32_t w, std::uint32_t mask,
                                            std::uint32_t (&a)[4]) {
  const std::uint32_t upper = w >> 2;
  a[0] = w & mask;
  a[1] = upper & mask;
  a[2] = w & mask << 4;
  a[3] = upper & mask << 4;
}

// The codes of one lane and unit as bytes: operand 2s + h.
template <int Bits>
struct CodeBytes;

template <>
struct CodeBytes<4> {
  uint2 w;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    w = reinterpret_cast<const uint2*>(unit)[lane];
  }
  __device__ __forceinline__ void operands(std::uint32_t (&a)[4]) const {
    a[0] = w.x & 0x0f0f0f0fu;
    a[1] = w.y & 0x0f0f0f0fu;
    a[2] = w.x & 0xf0f0f0f0u;
    a[3] = w.y & 0xf0f0f0f0u;
  }
};

template <>
struct CodeBytes<2> {
  std::uint32_t w;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    w = reinterpret_cast<const std::uint32_t*>(unit)[lane];
  }
  __device__ __forceinline__ void operands(std::uint32_t (&a)[4]) const {
    split_bytes(w, 0x03030303u, a);
  }
};

// A lane's halfword has bit 8e + 4s + 2h + r.
template <>
struct CodeBytes<1> {
  std::uint32_t w;  // bit 4s + 2h of byte 2e + r
  __device__ __forceinline__ void load(const std::byte* plane, int lane) {
    const std::uint32_t twice =
        __byte_perm(reinterpret_cast<const std::uint16_t*>(plane)[lane], 0, 0x1100);
    w = (twice & 0x00ff00ffu) | (twice >> 1 & 0xff00ff00u);
  }
  __device__ __forceinline__ void operands(std::uint32_t (&a)[4]) const {
    split_bytes(w, 0x01010101u, a);
  }
};

template <>
struct CodeBytes<3> {
  CodeBytes<2> low;
  CodeBytes<1> top;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    low.load(unit, lane);
    top.load(unit + 128, lane);
  }
  __device__ __forceinline__ void operands(std::uint32_t (&a)[4]) const {
    low.operands(a);
    const std::uint32_t lower = top.w << 2;
    a[0] |= lower & 0x04040404u;
    a[1] |= top.w & 0x04040404u;
    a[2] |= lower & 0x40404040u;
    a[3] |= top.w & 0x40404040u;
  }
};

// A lane's digits of a chunk.
class DigitReader {
 public:
  // `first_unit`: of the chunk.
  __device__ __forceinline__ DigitReader(const std::byte* first_unit, int lane)
      : from_(first_unit + digit_word(lane / 8 % 2, lane % 4) + lane / 4 % 2 * kLowDigits),
        upper_(lane / 8 % 2 != 0 ? 0xffffffffu : 0) {}
  __device__ __forceinline__ void operands(int unit, std::uint32_t& b0, std::uint32_t& b1) const {
    const std::uint32_t w = *reinterpret_cast<const std::uint32_t*>(from_ + unit * kInputUnitBytes);
    b0 = w & ~upper_;
    b1 = w & upper_;
  }

 private:
  const std::byte* from_;
  std::uint32_t upper_;
};

// The codes of a chunk, plane by plane.
struct ChunkPlanes {
  const std::byte* first = nullptr;  // of the first strip
  int stride = 0;                    // to the next strip's, bytes
  int strips = 0;                    // that are there, at least one
  int units = 0;
  // Strips beyond the last one are multiplied like it, and the results are not used: cheaper than
  // code for every count, which the instruction cache would have to hold.
  template <int Strips>
  __device__ __forceinline__ const std::byte* strip(int i) const {
    if (i == 0) return first;
    return first + (i + 1 < Strips ? i * stride : min(i, strips - 1) * stride);
  }
};

// sums += codes of one plane · digits; a strip's units are `unit_stride` bytes apart. Strips: at
// most one more than there are.
template <int Bits, int Strips, class Stride>
__device__ __forceinline__ void add_plane(const ChunkPlanes& codes, int offset, Stride unit_stride,
                                          const DigitReader& digits, DigitSums<Strips>& sums) {
  const int lane = lane_index();
  const auto add = [&](int u) {
    std::uint32_t b0;
    std::uint32_t b1;
    digits.operands(u, b0, b1);
#pragma unroll
    for (int i = 0; i < Strips; ++i) {
      CodeBytes<Bits> bytes;
      bytes.load(codes.template strip<Strips>(i) + offset + u * unit_stride, lane);
      std::uint32_t a[4];
      bytes.operands(a);
      mma_16x8x32(sums.at[i], a, b0, b1);
    }
  };
  if (codes.units % 2 == 0) {
#pragma unroll 1
    for (int u = 0; u < codes.units; u += 2) {
      add(u);
      add(u + 1);
    }
    return;
  }
#pragma unroll 1
  for (int u = 0; u < codes.units; ++u) add(u);  // small groups, or the rest of one
}

// sums = codes · digits over one chunk. Four bits have code of their own; all else shares, so that
// it stays in the instruction cache: wide codes plane by plane, the higher one first.
template <int Strips>
__device__ __forceinline__ void multiply_digits(int bits, const ChunkPlanes& codes,
                                                const DigitReader& digits,
                                                DigitSums<Strips>& sums) {
  sums.clear();
  if (bits == 4) {
    add_plane<4>(codes, 0, std::integral_constant<int, unit_bytes(4)>{}, digits, sums);
    return;
  }
  const int stride = unit_bytes(bits);
  if (bits == 3) {
    add_plane<3>(codes, 0, stride, digits, sums);
    return;
  }
  const int second = unit_bytes(4);  // where the second plane is
  if (bits == 5) {
    add_plane<1>(codes, second, stride, digits, sums);
  } else if (bits != 8) {
    add_plane<2>(codes, bits == 2 ? 0 : second, stride, digits, sums);
    if (bits == 2) return;
  }
  // 8 bits are two planes of 4, the high nibbles first.
#pragma unroll 1
  for (int offset = 0; offset <= (bits == 8 ? second : 0); offset += second) {
    sums.times16();
    add_plane<4>(codes, offset, stride, digits, sums);
  }
}

// totals[h] += scale · (what the sums are worth − zero · Σx) of one strip of a chunk.
__device__ __forceinline__ void add_worth(const LaneScales& scales, const float2& worth,
                                          const int (&sums)[4], float (&totals)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float number =
        fmaf(static_cast<float>(sums[2 * h]), 256.0f, static_cast<float>(sums[2 * h + 1]));
    totals[h] += scales.scale[h] * (number * worth.x - scales.zero[h] * worth.y);
  }
}

}  // namespace bl::cuda
