#include <algorithm>

#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return p.smoothing_factor > 0; }

constexpr float kDeepest = -1e6f;  // its cube still fits a float

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  const auto square = static_cast<float>(-p.smoothing_factor * (3 - p.smoothing_curve) / 2);
  const auto cube = static_cast<float>(p.smoothing_factor * (p.smoothing_curve - 1) / 2);
  const float best = *std::max_element(row.scores.begin(), row.scores.end());
  for (float& score : row.scores) {
    const float x = std::max(score - best, kDeepest);
    score = x * x * (square + cube * x);
  }
  row.weigh();
}

}  // namespace

const SamplerStage kSmoothingStage{"smoothing", wanted, apply};

}  // namespace bl
