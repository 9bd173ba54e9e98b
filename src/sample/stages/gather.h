#pragma once
#include <cstdint>

#include "sample/row_kernels.h"
#include "sample/sample_row.h"

namespace bl {

// The work that is done while candidates are gathered, and the cuts that directly follow.
struct GatherRules {
  double temperature = 1;  // 1 if temperature is off or applied later
  double smoothing_factor = 0;
  double smoothing_curve = 1;
  std::int64_t top_k = 0;
  // Set only if these stages follow directly, in this order; otherwise off.
  double top_p = 1;
  double top_a = 0;
  double min_p = 0;
};

// Maps a logit to a score, with x = logit − top. Temperature gives x / T; smoothing (kalomaze's
// quadratic sampling, text-generation-webui) gives (−k·factor·x² + s·factor·x³) / T with k = (3 −
// curve) / 2 and s = (curve − 1) / 2. The map never decreases.
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
  // Returns a logit that is below every logit with at least this score.
  float logit_below(double score) const;

 private:
  static constexpr float kDeepest = -1e6f;  // its cube is still a float
  ScoreFormula formula_;
};

// Makes candidates of the row: the top-k (ties go to low ids), or all tokens that are not barred.
// If top-p, top-a or min-p follow and top-k is off, tokens that these will cut for certain may be
// left out; for top-p and top-a, row.mass still includes them. Requires row.top and row.floor.
void gather(const GatherRules& rules, SampleRow& row);

}  // namespace bl
