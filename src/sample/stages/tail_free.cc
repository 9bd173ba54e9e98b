#include <cmath>

#include "sample/row_select.h"
#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return p.tfs > 0 && p.tfs < 1; }

std::uint32_t key_of(float score) { return rank_key(0.0f - score); }

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  if (row.size() < 3) return;
  row.rank([&](std::size_t i) { return 0.0f - row.scores[i]; });
  sort_ranked(row.ranked, row.ranked_swap);
  const std::vector<Ranked>& sorted = row.ranked;
  const auto bend = [&](std::size_t i) {
    return std::abs(static_cast<double>(sorted[i].weight) -
                    2 * static_cast<double>(sorted[i + 1].weight) +
                    static_cast<double>(sorted[i + 2].weight));
  };
  double total = 0;
  for (std::size_t i = 0; i + 2 < sorted.size(); ++i) total += bend(i);
  if (total == 0) return;
  double cumulative = 0;
  std::size_t within = 0;
  while (within + 2 < sorted.size() && (cumulative += bend(within)) <= p.tfs * total) ++within;
  const MassCut cut{sorted[within].key, sorted[within].id};
  row.filter([&](std::size_t i) { return cut.keeps(key_of(row.scores[i]), row.ids[i]); });
}

}  // namespace

const SamplerStage kTailFreeStage{"tail-free", wanted, apply};

}  // namespace bl
