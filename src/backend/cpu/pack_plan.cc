#include "backend/cpu/pack_plan.h"

#include <algorithm>

#include "base/check.h"

namespace bl::cpu {
namespace {

// Cuts a group into segments of nearly equal length.
void add_group(PackPlan& plan, PackPlan::Segment group) {
  const std::int64_t units = group.units();
  const std::int64_t pieces = (units + kMaxSegmentUnits - 1) / kMaxSegmentUnits;
  const std::int64_t end = group.first + group.slots;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    PackPlan::Segment segment = group;
    segment.first = group.first + units * piece / pieces * kUnitSlots;
    segment.slots =
        std::min(end, group.first + units * (piece + 1) / pieces * kUnitSlots) - segment.first;
    plan.segments.push_back(segment);
  }
}

void finish(PackPlan& plan) {
  std::size_t code_bytes = 0;
  for (std::size_t s = 0; s < plan.segments.size(); ++s) {
    const PackPlan::Segment& segment = plan.segments[s];
    if (plan.bands.empty() || plan.bands.back().bits != segment.bits) {
      plan.bands.push_back({segment.bits, static_cast<int>(s), 0});
    }
    ++plan.bands.back().segments;
    code_bytes += static_cast<std::size_t>(segment.units() * segment.bits) * 64;
  }
  const std::size_t scales = plan.segments.size() * scale_bytes(plan.scale_kind);
  plan.codes_offset = (scales + 63) / 64 * 64;
  plan.tile_bytes = plan.codes_offset + code_bytes;
}

}  // namespace

ActivationLayout PackPlan::layout(const std::vector<std::int32_t>& channel_of) const {
  ActivationLayout layout;
  for (const Segment& segment : segments) {
    layout.units.push_back(static_cast<std::int32_t>(segment.units()));
    const auto first = channel_of.begin() + segment.first;
    layout.gather.insert(layout.gather.end(), first, first + segment.slots);
    layout.gather.resize(layout.gather.size() +
                             static_cast<std::size_t>(segment.units() * kUnitSlots - segment.slots),
                         -1);
  }
  return layout;
}

PackPlan plan_packing(const Exl2Matrix& matrix) {
  PackPlan plan;
  plan.scale_kind = ScaleKind::kCodes;
  for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
    const Exl2Matrix::Group& group = matrix.groups[g];
    add_group(plan, {static_cast<std::int64_t>(g), group.bits, group.first_slot, group.slots});
  }
  finish(plan);
  return plan;
}

PackPlan plan_packing(const GptqMatrix& matrix) {
  PackPlan plan;
  const auto [low, high] = std::minmax_element(matrix.zeros.begin(), matrix.zeros.end());
  BL_CHECK(low != matrix.zeros.end());
  plan.zero = *low;
  if (*low == *high) {
    plan.scale_kind = ScaleKind::kHalf;
  } else if (*high - *low <= 255) {
    plan.scale_kind = ScaleKind::kHalfZero8;
  } else {
    plan.scale_kind = ScaleKind::kHalfZero16;
  }
  std::vector<std::int64_t> members(static_cast<std::size_t>(matrix.groups), 0);
  for (const std::int32_t group : matrix.group_of) ++members[static_cast<std::size_t>(group)];
  std::int64_t first = 0;
  for (std::size_t g = 0; g < members.size(); ++g) {
    if (members[g] > 0) {
      add_group(plan, {static_cast<std::int64_t>(g), matrix.bits, first, members[g]});
    }
    first += members[g];
  }
  finish(plan);
  return plan;
}

std::vector<std::int32_t> sorted_channels(const GptqMatrix& matrix) {
  std::vector<std::size_t> next(static_cast<std::size_t>(matrix.groups) + 1, 0);
  for (const std::int32_t group : matrix.group_of) ++next[static_cast<std::size_t>(group) + 1];
  for (std::size_t g = 1; g < next.size(); ++g) next[g] += next[g - 1];
  std::vector<std::int32_t> order(matrix.group_of.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[next[static_cast<std::size_t>(matrix.group_of[i])]++] = static_cast<std::int32_t>(i);
  }
  return order;
}

}  // namespace bl::cpu
