#include <cmath>

#include "sample/row_select.h"
#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return p.typical > 0 && p.typical < 1; }

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  // −ln p = ln mass − score.
  const auto offset = static_cast<float>(std::log(row.mass) - row.entropy());
  const auto distance = [&](std::size_t i) { return std::abs(offset - row.scores[i]); };
  row.rank(distance);
  const MassCut cut = cut_by_mass(row.ranked, p.typical * row.mass);
  row.filter([&](std::size_t i) { return cut.keeps(rank_key(distance(i)), row.ids[i]); });
}

}  // namespace

const SamplerStage kTypicalStage{"typical", wanted, apply};

}  // namespace bl
