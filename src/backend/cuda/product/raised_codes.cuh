#pragma once
// Codes as binary16 values that the formats mean: scale · (code − zero), rounded once.

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backend/cuda/product/code_product.cuh"

namespace bl::cuda {

__device__ __forceinline__ __half2 halves_of(std::uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}

// Bits that, put beside a code, make it a half larger by the base: for codes as they are, and for
// those 16 times too large (of slots s = 1), which widths up to 6 bits leave room for.
inline constexpr std::uint32_t kLowBits = 0x64006400u;
inline constexpr float kLowBase = 1024.0f;
inline constexpr std::uint32_t kHighBits = 0x54005400u;
inline constexpr float kHighBase = 64.0f;

// Codes of 8 bits, whose planes products take one after the other.
struct WideUnitCodes {
  UnitCodes<4> high;
  UnitCodes<4> low;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    high.load(unit, lane);
    low.load(unit + unit_bytes(4), lane);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s) const {
    return low.pair(h, r, s) | high.pair(h, r, s) << 4;
  }
};

// The pair at slots 16s + 8r + 2t of column h: 16 times too large where s = 1, but for codes of 8
// bits.
template <class Codes>
__device__ __forceinline__ std::uint32_t code_pair(const Codes& codes, int h, int r, int s) {
  const std::uint32_t pair = codes.pair(h, r, s);
  return s == 1 && std::is_same_v<Codes, WideUnitCodes> ? pair >> 4 : pair;
}
template <class Codes>
constexpr float raised_by(int s) {
  return s == 0 || std::is_same_v<Codes, WideUnitCodes> ? kLowBase : kHighBase;
}

// The same pair, as halves that are that much larger than the codes.
template <class Codes>
__device__ __forceinline__ __half2 raised_pair(const Codes& codes, int h, int r, int s) {
  const std::uint32_t bits = raised_by<Codes>(s) == kLowBase ? kLowBits : kHighBits;
  return halves_of(code_pair(codes, h, r, s) | bits);
}

template <int kBits>
using CodesOf = std::conditional_t<kBits == 8, WideUnitCodes, UnitCodes<kBits == 8 ? 4 : kBits>>;

// What EXL2 takes off codes: half of what there are.
template <class Codes>
constexpr int centre_of();
template <>
constexpr int centre_of<WideUnitCodes>() {
  return 128;
}
template <>
constexpr int centre_of<UnitCodes<6>>() {
  return 32;
}
template <>
constexpr int centre_of<UnitCodes<5>>() {
  return 16;
}
template <>
constexpr int centre_of<UnitCodes<4>>() {
  return 8;
}
template <>
constexpr int centre_of<UnitCodes<3>>() {
  return 4;
}
template <>
constexpr int centre_of<UnitCodes<2>>() {
  return 2;
}

// f(codes of the width, not loaded yet).
template <class F>
__device__ __forceinline__ void with_unit_codes(int bits, const F& f) {
  switch (bits) {
    case 2:
      return f(UnitCodes<2>{});
    case 3:
      return f(UnitCodes<3>{});
    case 4:
      return f(UnitCodes<4>{});
    case 5:
      return f(UnitCodes<5>{});
    case 6:
      return f(UnitCodes<6>{});
    default:
      return f(WideUnitCodes{});
  }
}

}  // namespace bl::cuda
