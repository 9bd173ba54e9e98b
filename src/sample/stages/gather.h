#pragma once
#include <cstdint>

#include "sample/row_kernels.h"
#include "sample/sample_row.h"

namespace bl {

// What gathering does, and which stages come right behind it.
struct GatherRules {
  double temperature = 1;  // 1 also where it comes later
  double smoothing_factor = 0;
  double smoothing_curve = 1;
  std::int64_t top_k = 0;
  // Only where they are the next, in this order; off otherwise.
  double top_p = 1;
  double top_a = 0;
  double min_p = 0;
};

// Logit to score: x = logit − top; temperature: x / T; smoothing (kalomaze's quadratic sampling,
// text-generation-webui): (−k·factor·x² + s·factor·x³) / T with k = (3 − curve) / 2 and
// s = (curve − 1) / 2. Never decreasing.
class ScoreMap {
 public:
  ScoreMap(const GatherRules& rules, const SampleRow& row);
  const ScoreFormula& formula() const { return formula_; }
  float operator()(float logit) const {
    const float x = logit - formula_.top;
    if (!formula_.smooth) return x * formula_.inverse;
    const float bounded = x < kDeepest ? kDeepest : x;
    return bounded * bounded * (formula_.square + formula_.cube * bounded) * formula_.inverse;
  }
  // A logit below all that have at least this score.
  float logit_below(double score) const;

 private:
  static constexpr float kDeepest = -1e6f;  // its cube is still a float
  ScoreFormula formula_;
};

// Makes candidates of the row: the top-k (ties to low ids), or all tokens that are not barred.
// Where top-p, top-a or min-p follow without top-k, tokens that these are certain to cut may be
// left out; row.mass counts them nevertheless where it matters (top-p, top-a). Needs row.top and
// row.floor.
void gather(const GatherRules& rules, SampleRow& row);

}  // namespace bl
