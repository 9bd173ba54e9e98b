#pragma once
#include "sample/sample_row.h"
#include "sample/sampling_params.h"

namespace bl {

// Logit to score: x = logit − top; temperature: x / T; smoothing (kalomaze's quadratic sampling,
// text-generation-webui): (−k·factor·x² + s·factor·x³) / T with k = (3 − curve) / 2 and
// s = (curve − 1) / 2. Never decreasing. T is 1 where temperature comes last or is dynamic.
class ScoreMap {
 public:
  ScoreMap(const SamplingParams& params, float top);
  bool is_linear() const { return !smooth_; }
  float top() const { return top_; }
  float inverse_temperature() const { return inverse_; }
  float operator()(float logit) const {
    if (!smooth_) return (logit - top_) * inverse_;
    const float x = logit - top_ < kDeepest ? kDeepest : logit - top_;
    return x * x * (square_ + cube_ * x) * inverse_;
  }

 private:
  static constexpr float kDeepest = -1e6f;  // its cube is still a float
  float top_;
  float inverse_;
  bool smooth_;
  float square_;
  float cube_;
};

// Makes candidates of the row: the top-k (ties to low ids), or all tokens that are not barred.
// Where top-p, top-a or min-p follow without top-k, tokens that these are certain to cut may be
// left out; row.mass counts them nevertheless where it matters (top-p, top-a). Needs row.top and
// row.floor.
void gather(const SamplingParams& params, SampleRow& row);

}  // namespace bl
