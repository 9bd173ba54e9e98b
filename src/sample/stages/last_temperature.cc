#include <algorithm>
#include <cmath>

#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

constexpr double kColdest = 1e-3;

bool is_on(const SamplingParams& p) { return p.dynamic_temperature() || p.temperature != 1; }
bool wanted(const SamplingParams& p) {
  return is_on(p) && (p.dynamic_temperature() || p.temperature_last);
}

double temperature_of(const SamplingParams& p, const SampleRow& row) {
  if (!p.dynamic_temperature()) return p.temperature;
  const double largest = std::log(static_cast<double>(row.size()));
  const double share = largest > 0 ? std::clamp(row.entropy() / largest, 0.0, 1.0) : 0.0;
  return p.min_temp + (p.max_temp - p.min_temp) * std::pow(share, p.temp_exponent);
}

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  const auto inverse = static_cast<float>(1 / std::max(temperature_of(p, row), kColdest));
  const float best = *std::max_element(row.scores.begin(), row.scores.end());
  for (float& score : row.scores) score = (score - best) * inverse;
  row.weigh();
}

}  // namespace

const SamplerStage kLastTemperatureStage{"temperature", wanted, apply};
const SamplerStage kTemperatureStage{"temperature", is_on, apply};

}  // namespace bl
