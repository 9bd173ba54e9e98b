#include <cmath>

#include "sample/row_select.h"
#include "sample/stages/candidate_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return p.typical > 0 && p.typical < 1; }

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  // −ln p = ln mass − score.
  const auto offset = static_cast<float>(std::log(row.mass) - row.entropy());
  const auto key_of = [&](std::size_t i) { return rank_key(std::abs(offset - row.scores[i])); };
  row.ranked.clear();
  for (std::size_t i = 0; i < row.size(); ++i) {
    row.ranked.push_back({key_of(i), row.weights[i], row.ids[i]});
  }
  const MassCut cut = cut_by_mass(row.ranked, p.typical * row.mass);
  row.filter([&](std::size_t i) { return cut.keeps(key_of(i), row.ids[i]); });
}

}  // namespace

const SamplerStage kTypicalStage{"typical", wanted, apply};

}  // namespace bl
