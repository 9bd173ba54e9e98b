#pragma once
// The arithmetic of ops/sample.h for host and device, with the same bits on both.

#include <cmath>
#include <cstdint>

#include "base/exact_math.h"
#include "base/fast_exp.h"
#include "base/host_device.h"
#include "ops/sample.h"

namespace bl {

inline constexpr float kLargestLogit = 3.402823466e38f;
// Tokens whose score is further below the top have no weight; at this distance one unit is left.
inline constexpr float kDeepestScore = 30.0f;
inline constexpr float kWeightUnits = 17592186044416.0f;  // 2^44 units are a weight of 1

BL_HD inline bool is_logit(float x) { return x <= kLargestLogit; }  // false for NaN and +∞

// Applies an edit to a logit; returns NaN if is_logit() is false.
BL_HD inline float edited_logit(float logit, const LogitEdit& edit, const SampleRule& rule) {
  if (!is_logit(logit)) return float_of_bits(0x7fc00000u);
  float x = logit;
  if (edit.count != 0) {
    x = x > 0 ? exact_div(x, rule.repetition) : exact_mul(x, rule.repetition);
    if (edit.count > 0) {
      x = exact_add(exact_add(x, -rule.presence), -exact_mul(rule.frequency, edit.count));
    }
    x = kLargestLogit < x ? kLargestLogit : x;
  }
  return exact_add(x, edit.bias);
}

// The distance of a token's score below the top score; at least 0.
BL_HD inline float score_distance(float logit, float top, float inverse) {
  return exact_add(0.0f, -exact_mul(exact_add(logit, -top), inverse));
}
BL_HD inline bool has_weight(float distance) { return distance <= kDeepestScore; }

BL_HD inline float weight_at(float distance) { return bl::fast_exp(-distance); }
BL_HD inline std::uint64_t weight_units(float weight) {
  return static_cast<std::uint64_t>(exact_mul(weight, kWeightUnits));
}

// Sort keys for top-p (distance) and top-k (logit); smaller keys come first.
BL_HD inline std::uint64_t key_of_distance(float distance, std::int32_t id) {
  return std::uint64_t{bits_of_float(distance)} << 32 | static_cast<std::uint32_t>(id);
}
BL_HD inline std::uint64_t key_of_logit(float logit, std::int32_t id) {
  const std::uint32_t bits = bits_of_float(exact_add(logit, 0.0f));  // −0 becomes +0
  const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return std::uint64_t{~ascending} << 32 | static_cast<std::uint32_t>(id);
}

// ⌈share · mass⌉, at least 1 and at most `mass`; share in (0, 1).
BL_HD inline std::uint64_t share_of(double share, std::uint64_t mass) {
  const double wanted = std::ceil(share * static_cast<double>(mass));
  if (!(wanted >= 1)) return 1;
  return wanted >= static_cast<double>(mass) ? mass : static_cast<std::uint64_t>(wanted);
}

// ⌊draw / 2^64 · mass⌋. The chosen token is the first at which the cumulative sum exceeds this.
BL_HD inline std::uint64_t place_of(std::uint64_t draw, std::uint64_t mass) {
  constexpr std::uint64_t kLow = 0xffffffffu;
  const std::uint64_t low = (draw & kLow) * (mass & kLow);
  const std::uint64_t left = (draw >> 32) * (mass & kLow) + (low >> 32);
  const std::uint64_t right = (draw & kLow) * (mass >> 32) + (left & kLow);
  return (draw >> 32) * (mass >> 32) + (left >> 32) + (right >> 32);
}

// Log-probability of a logit in a row whose largest logit is `top` and whose Σ exp(logit − top) is
// `mass` units.
BL_HD inline float log_share(float logit, float top, std::uint64_t mass) {
  const double below = static_cast<double>(logit) - static_cast<double>(top);
  return static_cast<float>(
      below - std::log(static_cast<double>(mass) / static_cast<double>(kWeightUnits)));
}

}  // namespace bl
