#pragma once
// Codes as binary16 values that the formats mean: scale · (code − zero), rounded once.

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/layout/code_fragments.cuh"
#include "backend/cuda/layout/magic_numbers.h"

namespace bl::cuda {

// Codes of 8 bits, whose planes products take one after the other. pair(h, r, s) is never 16 times
// too large.
struct WideCodeFragment {
  CodeFragment<4> high;
  CodeFragment<4> low;
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    high.load(k_step, lane);
    low.load(k_step + k_step_bytes(4), lane);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s, std::uint32_t beside) const {
    const int at = 8 * r + 4 * s;  // of the pair in a plane
    return (low.w[h] >> at & 0x000f000fu) | ((shifted(high.w[h], at - 4) & 0x00f000f0u) | beside);
  }
};

template <class Codes>
constexpr float raised_by(int s) {
  return s == 0 || std::is_same_v<Codes, WideCodeFragment> ? kLowBase : kHighBase;
}

// The pair at slots 16s + 8r + 2t of column h, as halves that are that much larger than the codes.
template <class Codes>
__device__ __forceinline__ __half2 raised_pair(const Codes& codes, int h, int r, int s) {
  return halves_of(codes.pair(h, r, s, raised_by<Codes>(s) == kLowBase ? kLowBits : kHighBits));
}

// What the formats mean by it; `zero`: the zero point, as much larger. The difference is exact, so
// the product is the one rounding that they ask for.
__device__ __forceinline__ __half2 dequant_pair(__half2 raised, __half2 zero, __half2 scale) {
  return __hmul2(__hsub2(raised, zero), scale);
}

// A lane's codes of a unit.
template <int kBits>
using CodesOf =
    std::conditional_t<kBits == 8, WideCodeFragment, CodeFragment<kBits == 8 ? 4 : kBits>>;

// f(std::integral_constant<int, bits>).
template <class F>
__device__ __forceinline__ void with_width(int bits, const F& f) {
  switch (bits) {
    case 2:
      return f(std::integral_constant<int, 2>{});
    case 3:
      return f(std::integral_constant<int, 3>{});
    case 4:
      return f(std::integral_constant<int, 4>{});
    case 5:
      return f(std::integral_constant<int, 5>{});
    case 6:
      return f(std::integral_constant<int, 6>{});
    default:
      return f(std::integral_constant<int, 8>{});
  }
}

}  // namespace bl::cuda
