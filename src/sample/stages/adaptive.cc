#include <algorithm>
#include <cmath>

#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

constexpr double kWidth = 0.3;
constexpr double kDepth = 10;

bool wanted(const SamplingParams& p) { return p.adaptive_target < 1; }

// Weights above this share of the mass are recomputed in double: the score magnifies differences
// between large shares 33 times, for which float weights are too coarse.
constexpr double kExact = 1e-6;

double exact_weight(const SampleRow& row, std::size_t i) {
  const auto rough = static_cast<double>(row.weights[i]);
  return rough > kExact * row.mass ? std::exp(static_cast<double>(row.scores[i])) : rough;
}

void apply(const SamplingParams& p, const SamplerState& state, SampleRow& row) {
  const double mean = state.adaptive_sum / state.adaptive_weight;
  const double aim = std::clamp(2 * p.adaptive_target - mean, 0.0, 1.0);
  double mass = 0;
  for (std::size_t i = 0; i < row.size(); ++i) mass += exact_weight(row, i);
  row.unaimed.clear();
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double probability = exact_weight(row, i) / mass;
    row.unaimed.emplace_back(row.ids[i], probability);
    const double d = std::abs(probability - aim) / kWidth;
    row.scores[i] = static_cast<float>(-kDepth * d * d / (d + 1));
  }
  row.rebase();
}

}  // namespace

const SamplerStage kAdaptiveStage{"adaptive-p", wanted, apply};

}  // namespace bl
