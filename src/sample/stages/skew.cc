#include <algorithm>
#include <cmath>

#include "sample/row_select.h"
#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return p.skew != 0; }

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  row.rank([&](std::size_t i) { return 0.0f - row.scores[i]; });
  sort_ranked(row.ranked, row.ranked_swap);
  const double exponent = std::exp(p.skew);
  // Summed in the same order as below, so that the last cumulative sum is exactly 1.
  double total = 0;
  for (const Ranked& item : row.ranked) total += static_cast<double>(item.weight);
  double cumulative = 0;
  double before = 0;
  for (Ranked& item : row.ranked) {
    cumulative += static_cast<double>(item.weight);
    const double after = std::pow(cumulative / total, exponent);
    item.weight = static_cast<float>(after - before);
    before = after;
  }
  // Sort back by id. Ids are not negative, so their bits order like the ids.
  for (Ranked& item : row.ranked) item.key = static_cast<std::uint32_t>(item.id);
  sort_ranked(row.ranked, row.ranked_swap);
  for (std::size_t i = 0; i < row.size(); ++i) {
    row.weights[i] = row.ranked[i].weight;
    row.scores[i] = std::max(std::log(row.weights[i]), -200.0f);
  }
  row.mass = 0;
  for (const float weight : row.weights) row.mass += static_cast<double>(weight);
}

}  // namespace

const SamplerStage kSkewStage{"skew", wanted, apply};

}  // namespace bl
