#pragma once
// Codes as the binary16 values of the formats: scale · (code − zero), rounded once.

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/layout/code_fragments.cuh"
#include "backend/cuda/layout/magic_numbers.h"

namespace bl::cuda {

// Codes of 8 bits with both planes in one register, while GEMMs on codes multiply the planes one
// after the other. pair(h, r, s) is never multiplied by 16.
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
constexpr float magic_base(int s) {
  return s == 0 || std::is_same_v<Codes, WideCodeFragment> ? kLowBase : kHighBase;
}

// Returns the pair at k = 16s + 8r + 2t of column h as magic-number halves: code + magic_base().
template <class Codes>
__device__ __forceinline__ __half2 magic_pair(const Codes& codes, int h, int r, int s) {
  return halves_of(codes.pair(h, r, s, magic_base<Codes>(s) == kLowBase ? kLowBits : kHighBits));
}

// Returns scale · (code − zero point). `zero`: zero point + magic_base(). The difference is exact,
// so the multiplication is the only rounding, as the formats require.
__device__ __forceinline__ __half2 dequant_pair(__half2 magic, __half2 zero, __half2 scale) {
  return __hmul2(__hsub2(magic, zero), scale);
}

// A lane's codes of a k_step of any width.
template <int kBits>
using CodesOf =
    std::conditional_t<kBits == 8, WideCodeFragment, CodeFragment<kBits == 8 ? 4 : kBits>>;

// Calls f(std::integral_constant<int, bits>).
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
