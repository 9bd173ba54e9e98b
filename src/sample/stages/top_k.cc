#include <algorithm>

#include "sample/row_select.h"
#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return p.top_k > 0; }

std::uint32_t key_of(float score) { return rank_key(0.0f - score); }

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  if (static_cast<std::uint64_t>(p.top_k) >= row.size()) return;
  row.rank([&](std::size_t i) { return 0.0f - row.scores[i]; });
  const auto last = row.ranked.begin() + static_cast<std::ptrdiff_t>(p.top_k - 1);
  std::nth_element(row.ranked.begin(), last, row.ranked.end(),
                   [](const Ranked& a, const Ranked& b) {
                     return a.key != b.key ? a.key < b.key : a.id < b.id;
                   });
  const MassCut cut{last->key, last->id};
  row.filter([&](std::size_t i) { return cut.keeps(key_of(row.scores[i]), row.ids[i]); });
}

}  // namespace

const SamplerStage kTopKStage{"top-k", wanted, apply};

}  // namespace bl
