#pragma once
// eˣ for x ≤ 0 in float, with the same bits on host and device, written so that compilers vectorise
// loops over it. The relative error is below 2e-7 (the remainder of the degree-6 Taylor polynomial
// for |r| ≤ ln 2 / 2 is 1.2e-7). Results below the smallest normal float are 0.

#include <cstdint>

#include "base/exact_math.h"

namespace bl {

// x = n · ln 2 + r. ln 2 is split in two parts (Cody and Waite), so that n · kLn2High is exact.
BL_HD inline float fast_exp(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 · 2^23: adding it rounds to a whole number
  constexpr float kSmallest = -87.3f;
  const float clamped = x < kSmallest ? kSmallest : x;
  const float rounded = exact_add(exact_mul(clamped, kLog2E), kRound);
  const float n = exact_add(rounded, -kRound);
  const float r = exact_add(exact_add(clamped, -exact_mul(n, kLn2High)), -exact_mul(n, kLn2Low));
  float p = 1.0f / 720;
  p = exact_add(exact_mul(p, r), 1.0f / 120);
  p = exact_add(exact_mul(p, r), 1.0f / 24);
  p = exact_add(exact_mul(p, r), 1.0f / 6);
  p = exact_add(exact_mul(p, r), 0.5f);
  p = exact_add(exact_mul(p, r), 1.0f);
  p = exact_add(exact_mul(p, r), 1.0f);
  const std::uint32_t exponent = (bits_of_float(rounded) + 127u) << 23;
  const float value = exact_mul(p, float_of_bits(exponent));
  return x < kSmallest ? 0.0f : value;
}

}  // namespace bl
