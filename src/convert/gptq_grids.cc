#include "convert/gptq_grids.h"

#include <cmath>
#include <limits>

#include "format/bit_codec.h"
#include "ops/grid_math.h"
#include "tensor/float16.h"

namespace bl {
namespace {

// Keeps the better of two grids for each column.
void keep_better(const GroupPanel& panel, const ColumnGrids& tried, ColumnGrids& best,
                 ColumnLanes& least) {
  ColumnLanes errors;
  group_errors(panel, tried, errors);
  for (std::size_t c = 0; c < static_cast<std::size_t>(panel.columns); ++c) {
    if (errors[c] >= least[c]) continue;
    least[c] = errors[c];
    best.scale[c] = tried.scale[c];
    best.zero[c] = tried.zero[c];
  }
}

}  // namespace

GptqGrids::GptqGrids(const GptqGridRules& rules, std::size_t groups, std::int64_t out)
    : rules_(rules),
      out_(out),
      scales_(groups * static_cast<std::size_t>(out)),
      zeros_(scales_.size()) {}

// The grids from the smallest to the largest weight of each column, 0 included.
ColumnGrids GptqGrids::spanning(const GroupPanel& panel) const {
  ColumnLanes low{}, high{};
  for (std::size_t r = 0; r < panel.importance.size(); ++r) {
    const float* weights = panel.weights + static_cast<std::int64_t>(r) * panel.stride;
    for (std::size_t c = 0; c < static_cast<std::size_t>(panel.columns); ++c) {
      low[c] = std::min(low[c], weights[c]);
      high[c] = std::max(high[c], weights[c]);
    }
  }
  ColumnGrids grids;
  for (std::size_t c = 0; c < low.size(); ++c) {
    if (rules_.symmetric) {
      high[c] = std::max(high[c], -low[c]);
      low[c] = -high[c];
    }
    const float span = high[c] - low[c];
    // A column of zeros has no span; any scale does.
    const float steps = static_cast<float>(code_mask(panel.bits));
    grids.scale[c] = span > 0.0f ? stored_scale(span / steps) : 1.0f;
    const float zero = std::nearbyint(-low[c] / grids.scale[c]);
    grids.zero[c] = std::clamp(zero, rules_.least_zero, rules_.largest_zero);
  }
  return grids;
}

ColumnGrids GptqGrids::best_grids(const GroupPanel& panel) const {
  const ColumnGrids base = spanning(panel);
  ColumnGrids best = base;
  ColumnLanes least;
  least.fill(std::numeric_limits<float>::infinity());
  const int reach = rules_.symmetric ? 0 : kZeroReach;
  const auto try_ratio = [&](const ColumnGrids& around, float ratio, int shift) {
    ColumnGrids tried;
    for (std::size_t c = 0; c < tried.scale.size(); ++c) {
      tried.scale[c] = stored_scale(around.scale[c] * ratio);
      tried.zero[c] = std::clamp(around.zero[c] + static_cast<float>(shift), rules_.least_zero,
                                 rules_.largest_zero);
    }
    keep_better(panel, tried, best, least);
  };
  for (int point = 0; point < kSpanPoints; ++point) {
    for (int shift = -reach; shift <= reach; ++shift) try_ratio(base, span_ratio(point), shift);
  }
  const ColumnGrids coarse = best;
  for (int step = 0; step < kFineSteps; ++step) try_ratio(coarse, fine_ratio(step), 0);
  return best;
}

void GptqGrids::store(std::size_t group, const ColumnPanel& panel, const ColumnGrids& grids) {
  const std::size_t first =
      group * static_cast<std::size_t>(out_) + static_cast<std::size_t>(panel.first);
  for (std::size_t c = 0; c < static_cast<std::size_t>(panel.columns); ++c) {
    scales_[first + c] = float_to_half(grids.scale[c]);
    zeros_[first + c] = static_cast<std::uint8_t>(grids.zero[c]);
  }
}

void GptqGrids::search(const HostThreads& threads, std::size_t group, const GroupWeights& weights) {
  for_panels(threads, out_, [&](const ColumnPanel& panel) {
    const GroupPanel part = weights.of(panel, rules_.bits);
    store(group, panel, rules_.min_max ? spanning(part) : best_grids(part));
  });
}

ColumnGrids GptqGrids::grids(std::size_t group, const ColumnPanel& panel) const {
  const std::size_t first =
      group * static_cast<std::size_t>(out_) + static_cast<std::size_t>(panel.first);
  ColumnGrids result;
  for (std::size_t c = 0; c < static_cast<std::size_t>(panel.columns); ++c) {
    result.scale[c] = half_to_float(scales_[first + c]);
    result.zero[c] = zeros_[first + c];
  }
  return result;
}

bool GptqGrids::refit(std::size_t group, const ColumnPanel& panel, const RefitTerms& terms) {
  if (rules_.min_max) return false;
  ColumnGrids current = grids(group, panel);
  bool changed = false;
  for (std::size_t c = 0; c < static_cast<std::size_t>(panel.columns); ++c) {
    const GptqGrid now{current.scale[c], current.zero[c], 0.0};
    const GptqGrid best =
        refitted_gptq_grid(terms.of(c), now, rules_.least_zero, rules_.largest_zero);
    if (best.scale == now.scale && best.zero == now.zero) continue;
    current.scale[c] = best.scale;
    current.zero[c] = best.zero;
    changed = true;
  }
  if (changed) store(group, panel, current);
  return changed;
}

}  // namespace bl
