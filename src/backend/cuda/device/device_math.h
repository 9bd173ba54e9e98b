#pragma once
// Arithmetic that has different names on the host and on the device.

#include <cmath>
#include <cstdint>

#include "base/exact_math.h"
#include "base/host_device.h"
#include "tensor/float16.h"

namespace bl::cuda {

// The fast_… functions are off by a few units in the last place, so they are only for values that
// need not agree between host and device to the bit. The exact_… functions are in
// base/exact_math.h.
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

// Returns the power of two p, limited to [2^-100, 2^100], for which largest / p lies in
// [2^exponent, 2^(exponent + 1)); returns 1 for zero, infinity and NaN. Dividing by p is exact,
// except for results that become subnormal.
BL_HD inline float power_of_two_for(float largest, int exponent) {
  const auto own = static_cast<int>(bits_of_float(largest) >> 23);  // the exponent field
  if (!(largest > 0.0f) || own == 0xff) return 1.0f;
  const int wanted = own - 127 - exponent;
  const int power = wanted > 100 ? 100 : wanted < -100 ? -100 : wanted;
  return float_of_bits(static_cast<std::uint32_t>(power + 127) << 23);
}

// min and max that keep a NaN and the sign of a zero of `value`, like std::min(value, limit) and
// std::max(value, limit).
BL_HD inline float at_most(float value, float limit) { return limit < value ? limit : value; }
BL_HD inline float at_least(float value, float limit) { return value < limit ? limit : value; }

BL_HD inline float sigmoid(float x) { return fast_div(1.0f, 1.0f + fast_exp(-x)); }
BL_HD inline float softplus(float x) {
  return (x > 0.0f ? x : 0.0f) + std::log1p(fast_exp(-std::fabs(x)));
}

}  // namespace bl::cuda
