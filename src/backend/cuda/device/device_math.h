#pragma once
// Arithmetic that host and device spell differently.

#include <cmath>
#include <cstdint>

#include "base/exact_math.h"
#include "base/host_device.h"
#include "tensor/float16.h"

namespace bl::cuda {

// exact_… are in base. fast_…: a few units in the last place, for values that are used and not
// compared.
#if defined(__CUDA_ARCH__)
BL_HD inline float fast_div(float a, float b) { return __fdividef(a, b); }
BL_HD inline float fast_exp(float x) { return __expf(x); }
BL_HD inline float float_of_half(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
BL_HD inline std::uint16_t half_of_float(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
BL_HD inline float fast_div(float a, float b) { return a / b; }
BL_HD inline float fast_exp(float x) { return std::exp(x); }
BL_HD inline float float_of_half(std::uint16_t bits) { return half_to_float(bits); }
BL_HD inline std::uint16_t half_of_float(float value) { return float_to_half(value); }
#endif

BL_HD inline float float_of(float value) { return value; }
BL_HD inline float float_of(Half value) { return float_of_half(value.bits); }
BL_HD inline float float_of(BFloat16 value) {
  return float_of_bits(static_cast<std::uint32_t>(value.bits) << 16);
}

// The power of two p in [2^-100, 2^100] that brings largest / p to [2^exponent, 2^(exponent + 1));
// 1 where nothing can be brought there: zero, infinity, NaN. Dividing by it rounds nothing but what
// becomes subnormal.
BL_HD inline float power_of_two_for(float largest, int exponent) {
  const auto own = static_cast<int>(bits_of_float(largest) >> 23);  // of a positive value
  if (!(largest > 0.0f) || own == 0xff) return 1.0f;
  const int wanted = own - 127 - exponent;
  const int power = wanted > 100 ? 100 : wanted < -100 ? -100 : wanted;
  return float_of_bits(static_cast<std::uint32_t>(power + 127) << 23);
}

// Signs and NaN are kept, as std::min and std::max do with the value first.
BL_HD inline float at_most(float value, float limit) { return limit < value ? limit : value; }
BL_HD inline float at_least(float value, float limit) { return value < limit ? limit : value; }

BL_HD inline float sigmoid(float x) { return fast_div(1.0f, 1.0f + fast_exp(-x)); }
BL_HD inline float softplus(float x) {
  return (x > 0.0f ? x : 0.0f) + std::log1p(fast_exp(-std::fabs(x)));
}

}  // namespace bl::cuda
