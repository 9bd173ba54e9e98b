#include <algorithm>
#include <cmath>

#include "sample/philox.h"
#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return p.xtc_probability > 0; }

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  const double bar = p.xtc_threshold * row.mass;
  std::vector<std::int32_t>& top = row.touched;  // indices of the top choices
  top.clear();
  const std::vector<std::int32_t>& spared = p.xtc_ignore_tokens;
  std::size_t least = 0;  // index in `top` of the least likely one
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (static_cast<double>(row.weights[i]) < bar || row.weights[i] == 0.0f) continue;
    if (std::binary_search(spared.begin(), spared.end(), row.ids[i])) continue;
    top.push_back(static_cast<std::int32_t>(i));
    const auto best_so_far = static_cast<std::size_t>(top[least]);
    if (row.scores[i] <= row.scores[best_so_far]) least = top.size() - 1;
  }
  if (top.size() < 2) return;
  top.erase(top.begin() + static_cast<std::ptrdiff_t>(least));
  double chance = p.xtc_probability;
  if (p.xtc_random) {
    const double coin =
        uniform_at(row.seed, row.args->position, DrawStream::kExclusion, row.args->rewinds);
    if (coin >= chance) return;
    chance = 1;
  }
  // Must be called with i = 0, 1, 2, … in order.
  auto is_going = [&top, next = std::size_t{0}](std::size_t i) mutable {
    const bool is_next = next < top.size() && static_cast<std::size_t>(top[next]) == i;
    next += is_next ? 1 : 0;
    return is_next;
  };
  if (chance == 1) {
    row.filter([&](std::size_t i) { return !is_going(i); });
    return;
  }
  // Sum both, because 1 − going / mass would be rounding error if nearly everything goes.
  double going = 0;
  double staying = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    (is_going(i) ? going : staying) += static_cast<double>(row.weights[i]);
  }
  const double factor = (1 - chance) / (1 + chance * going / staying);
  const auto shift = static_cast<float>(std::log(factor));
  for (const std::int32_t i : top) {
    row.weights[static_cast<std::size_t>(i)] *= static_cast<float>(factor);
    row.scores[static_cast<std::size_t>(i)] += shift;
  }
  row.mass = 0;
  for (const float weight : row.weights) row.mass += static_cast<double>(weight);
}

}  // namespace

const SamplerStage kExcludeTopStage{"xtc", wanted, apply};

}  // namespace bl
