#include "convert/exl2_grids.h"

#include "convert/scale_search.h"
#include "format/exl2_scale.h"
#include "ops/grid_math.h"

namespace bl {

Exl2Grids::Exl2Grids(std::span<const SlotGroup> groups, std::int64_t out)
    : groups_(groups),
      out_(out),
      scale_codes_(groups.size() * static_cast<std::size_t>(out)),
      scale_max_(groups.size()) {}

void Exl2Grids::search(const HostThreads& threads, std::size_t group, const GroupWeights& weights) {
  const int bits = groups_[group].bits;
  ErrorCurves curves(out_);
  for_panels(threads, out_, [&](const ColumnPanel& panel) {
    measure_curves(weights.of(panel, bits), panel.first, curves);
  });
  scale_max_[group] = choose_scale_max(threads, curves);
  for_panels(threads, out_, [&](const ColumnPanel& panel) {
    choose_scale_codes(weights.of(panel, bits), panel.first, curves, scale_max_[group],
                       scale_codes_.data() + at(group, panel));
  });
}

ColumnGrids Exl2Grids::grids(std::size_t group, const ColumnPanel& panel) const {
  ColumnGrids result;
  const auto scales = column_scales(scale_max_[group]);
  const std::uint8_t* codes = scale_codes_.data() + at(group, panel);
  for (std::size_t c = 0; c < static_cast<std::size_t>(panel.columns); ++c) {
    result.scale[c] = scales[codes[c]];
  }
  result.zero.fill(static_cast<float>(exl2_center(groups_[group].bits)));
  return result;
}

bool Exl2Grids::refit(std::size_t group, const ColumnPanel& panel, const RefitTerms& terms) {
  const auto scales = column_scales(scale_max_[group]);
  std::uint8_t* codes = scale_codes_.data() + at(group, panel);
  bool changed = false;
  for (std::size_t c = 0; c < static_cast<std::size_t>(panel.columns); ++c) {
    const int code = refitted_exl2_code(scales.data(), codes[c], terms.of(c));
    changed = changed || code != codes[c];
    codes[c] = static_cast<std::uint8_t>(code);
  }
  return changed;
}

}  // namespace bl
