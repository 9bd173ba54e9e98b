// Top-a, min-p and mirostat: each removes everything below a threshold on the weight.

#include <algorithm>
#include <cmath>

#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

float largest(const SampleRow& row) {
  return *std::max_element(row.weights.begin(), row.weights.end());
}

// Keeps weights of at least `least`, or only the likeliest token if no weight is that large.
void keep_from(double least, float best, SampleRow& row) {
  if (least > static_cast<double>(best)) {
    bool found = false;
    row.filter([&](std::size_t i) {
      const bool first = !found && row.weights[i] == best;
      found = found || first;
      return first;
    });
    return;
  }
  row.filter([&](std::size_t i) { return static_cast<double>(row.weights[i]) >= least; });
}

bool wants_top_a(const SamplingParams& p) { return p.top_a > 0; }
void top_a(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  const float best = largest(row);
  keep_from(p.top_a * static_cast<double>(best) * static_cast<double>(best) / row.mass, best, row);
}

bool wants_min_p(const SamplingParams& p) { return p.min_p > 0; }
void min_p(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  const float best = largest(row);
  keep_from(p.min_p * static_cast<double>(best), best, row);
}

bool wants_mirostat(const SamplingParams& p) { return p.mirostat_mode == 2; }
void mirostat(const SamplingParams&, const SamplerState& state, SampleRow& row) {
  keep_from(std::exp2(-state.mirostat_mu) * row.mass, largest(row), row);
}

}  // namespace

const SamplerStage kTopAStage{"top-a", wants_top_a, top_a};
const SamplerStage kMinPStage{"min-p", wants_min_p, min_p};
const SamplerStage kMirostatStage{"mirostat", wants_mirostat, mirostat};

}  // namespace bl
