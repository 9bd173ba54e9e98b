#pragma once
// Arithmetic of scales and codes that rounding shares between host and device.

#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "tensor/float16.h"

namespace bl {

// The nearest integer, ties to even, for |value| < 2^22. Adding and subtracting 1.5 · 2^23 does it
// in code that compilers vectorize for every processor.
BL_HD inline float round_even(float value) { return (value + 12582912.0f) - 12582912.0f; }

// The search for EXL2's scales measures the error of each column at a ladder of scales around its
// largest weight (docs/formats/exl2.md §9).
inline constexpr int kCurvePoints = 20;
inline constexpr int kCurvePointsPerOctave = 12;
inline constexpr float kCurveFirst = 1.15f;  // relative to the scale that clips nothing

// A point's scale, relative to the first one.
BL_HD inline float curve_ratio(int point) {
  return std::exp2(-static_cast<float>(point) / static_cast<float>(kCurvePointsPerOctave));
}

// The error at a place on the ladder, in points: between two points by interpolation, and beyond
// the ends by what rounding (above) and clipping (below) roughly do. errors(point) returns the
// error that was measured.
template <class Errors>
BL_HD inline float curve_error(const Errors& errors, float place) {
  constexpr float kLast = kCurvePoints - 1;
  if (place <= 0.0f) return errors(0) * std::exp2(-2.0f * place / kCurvePointsPerOctave);
  if (place >= kLast) {
    return errors(kCurvePoints - 1) * std::exp2(4.0f * (place - kLast) / kCurvePointsPerOctave);
  }
  const int low = static_cast<int>(place);
  const float part = place - static_cast<float>(low);
  const int high = low + 1 < kCurvePoints ? low + 1 : kCurvePoints - 1;
  return errors(low) + part * (errors(high) - errors(low));
}

// The maxima that are tried for a group: 18 steps of a sixteenth of an octave, from three above the
// largest scale that a column prefers. Binary16 bits.
inline constexpr int kMaximaTried = 18;
BL_HD inline std::uint16_t tried_maximum(float largest, int attempt) {
  const float tried = largest * std::exp2(static_cast<float>(3 - attempt) / 16.0f);
  return float_to_half(tried < 65504.0f ? tried : 65504.0f);
}

// Code n of EXL2 scales a group's maximum by ((n + 1) / 16)²: the logarithm of that to base 2.
BL_HD inline float code_log(int code) {
  return 2.0f * std::log2(static_cast<float>(code + 1) / 16.0f);
}

// A maximum on trial, of which 256 · exl2_group_scale() is what codes scale.
struct TriedMaximum {
  float value = 0.0f;
  float log = 0.0f;                  // to base 2
  const float* code_logs = nullptr;  // [16] code_log()
};

// The smaller error of the two codes around the scale that a column prefers. `log_base`: the
// logarithm to base 2 of the first scale of its ladder.
template <class Errors>
BL_HD inline float error_with_maximum(const Errors& errors, float log_base, float preferred,
                                      const TriedMaximum& maximum) {
  const float root = std::floor(16.0f * std::sqrt(preferred / maximum.value));
  const float low = root < 1.0f ? 1.0f : root > 16.0f ? 16.0f : root;
  const float high = low + 1.0f < 16.0f ? low + 1.0f : 16.0f;
  const auto error_of = [&](float step) {
    const float log_scale = maximum.log + maximum.code_logs[static_cast<int>(step) - 1];
    return curve_error(errors, (log_base - log_scale) * kCurvePointsPerOctave);
  };
  const float below = error_of(low), above = error_of(high);
  return above < below ? above : below;
}

// By how much the loss of a column changes if a group's codes stay, but its scale or its zero point
// changes: see RefitTerms (convert/group_grids.h).
struct RefitSums {
  float by_scale = 0.0f;
  float by_shift = 0.0f;
  float scale_scale = 0.0f;
  float scale_shift = 0.0f;
  float shift_shift = 0.0f;
};

// The one of EXL2's 16 scales with the least loss; `now` where none is better.
BL_HD inline int refitted_exl2_code(const float* scales, int now, const RefitSums& sums) {
  int best = now;
  float least = 0.0f;
  for (int code = 0; code < 16; ++code) {
    const float change = scales[code] - scales[now];
    const float loss = change * (2.0f * sums.by_scale + change * sums.scale_scale);
    if (loss >= least) continue;
    least = loss;
    best = code;
  }
  return best;
}

// The nearest scale that a GPTQ file can hold: binary16, above 0 and finite.
BL_HD inline float stored_scale(float scale) {
  const float least = 0x1p-24f, most = 65504.0f;
  return half_to_float(float_to_half(scale < least ? least : most < scale ? most : scale));
}

// GPTQ's search: scales down from the one that spans all weights, then finer steps around the best.
inline constexpr int kSpanPoints = 18;
inline constexpr int kSpanPointsPerOctave = 12;
inline constexpr float kSpanFirst = 1.1f;
inline constexpr int kZeroReach = 2;  // zero points tried on either side
BL_HD inline float span_ratio(int point) {
  return kSpanFirst * std::exp2(-static_cast<float>(point) / kSpanPointsPerOctave);
}
inline constexpr int kFineSteps = 4;  // −2, −1, 1, 2
BL_HD inline float fine_ratio(int step) {
  const int part = step < 2 ? step - 2 : step - 1;
  return std::exp2(static_cast<float>(part) / (3 * kSpanPointsPerOctave));
}

// A scale and zero point of GPTQ, and what taking them changes of the loss.
struct GptqGrid {
  float scale = 0.0f;
  float zero = 0.0f;
  double change = 0.0;
};

// The best scale of a column whose zero point moves by `shift`. With s the old scale and s' the new
// one, the weights change by (s' − s) · (q − zero) − s' · shift, and the loss is a parabola in s'.
BL_HD inline GptqGrid moved_gptq_grid(const RefitSums& sums, const GptqGrid& now, double shift) {
  const double s = now.scale;
  const double shift_shift = sums.shift_shift, scale_shift = sums.scale_shift;
  const double curvature =
      sums.scale_scale - 2.0 * shift * scale_shift + shift * shift * shift_shift;
  if (!(curvature > 0.0)) return now;
  const double slope =
      sums.by_scale - shift * sums.by_shift - shift * s * (scale_shift - shift * shift_shift);
  GptqGrid result;
  result.scale = stored_scale(static_cast<float>(s - slope / curvature));
  result.zero = now.zero + static_cast<float>(shift);
  const double by_scale = result.scale - s, by_shift = -result.scale * shift;
  result.change = 2.0 * (by_scale * sums.by_scale + by_shift * sums.by_shift) +
                  by_scale * by_scale * sums.scale_scale + 2.0 * by_scale * by_shift * scale_shift +
                  by_shift * by_shift * shift_shift;
  return result;
}

// The best of the same and, if they are allowed, the two next zero points.
BL_HD inline GptqGrid refitted_gptq_grid(const RefitSums& sums, const GptqGrid& now,
                                         float least_zero, float largest_zero) {
  GptqGrid best = now;
  for (const int shift : {0, -1, 1}) {
    const float zero = now.zero + static_cast<float>(shift);
    if (zero < least_zero || zero > largest_zero) continue;
    const GptqGrid tried = moved_gptq_grid(sums, now, shift);
    if (tried.change < best.change) best = tried;
  }
  return best;
}

}  // namespace bl
