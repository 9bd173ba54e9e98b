#include <algorithm>
#include <cmath>

#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

constexpr double kWidth = 0.3;
constexpr double kDepth = 10;

bool wanted(const SamplingParams& p) { return p.adaptive_target < 1; }

void apply(const SamplingParams& p, const SamplerState& state, SampleRow& row) {
  const double mean = state.adaptive_sum / state.adaptive_weight;
  const double aim = std::clamp(2 * p.adaptive_target - mean, 0.0, 1.0);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double share = static_cast<double>(row.weights[i]) / row.mass;
    const double d = std::abs(share - aim) / kWidth;
    row.scores[i] = static_cast<float>(-kDepth * d * d / (d + 1));
  }
  row.rebase();
}

}  // namespace

const SamplerStage kAdaptiveStage{"adaptive-p", wanted, apply};

}  // namespace bl
