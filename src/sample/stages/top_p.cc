#include "sample/row_select.h"
#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return p.top_p < 1; }

std::uint32_t key_of(float score) { return rank_key(0.0f - score); }

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  row.rank([&](std::size_t i) { return 0.0f - row.scores[i]; });
  const MassCut cut = cut_by_mass(row.ranked, p.top_p * row.mass);
  row.filter([&](std::size_t i) { return cut.keeps(key_of(row.scores[i]), row.ids[i]); });
}

}  // namespace

const SamplerStage kTopPStage{"top-p", wanted, apply};

}  // namespace bl
