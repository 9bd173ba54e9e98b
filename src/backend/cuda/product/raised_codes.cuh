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

// The pair at slots 16s + 8r + 2t of column h, as halves that are that much larger than the codes.
template <class Codes>
__device__ __forceinline__ __half2 raised_pair(const Codes& codes, int h, int r, int s) {
  if (s == 0) return halves_of(codes.pair(h, r, 0) | kLowBits);
  if constexpr (std::is_same_v<Codes, WideUnitCodes>) {
    return halves_of(codes.pair(h, r, 1) >> 4 | kLowBits);
  } else {
    return halves_of(codes.pair(h, r, 1) | kHighBits);
  }
}
template <class Codes>
constexpr float raised_by(int s) {
  return s == 0 || std::is_same_v<Codes, WideUnitCodes> ? kLowBase : kHighBase;
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
