#include "convert/gptq_rounding.h"

#include "base/error.h"
#include "convert/gptq_grids.h"
#include "format/quoted_name.h"

namespace bl {

SlotOrder GptqLayout::slot_order(std::int64_t in) const {
  if (act_order) return {SlotOrder::Kind::kImportance};
  if (natural_order) return {SlotOrder::Kind::kChannels};
  return {SlotOrder::Kind::kGroupImportance, channels_per_group(in)};
}

void check_gptq_layout(const GptqLayout& layout) {
  if (layout.bits != 2 && layout.bits != 3 && layout.bits != 4 && layout.bits != 8) {
    fail(ErrorCode::kInvalidArgument, "GPTQ codes have 2, 3, 4 or 8 bits, not {}; choose one by -b",
         layout.bits);
  }
  if (layout.group_size != -1 && (layout.group_size < 32 || layout.group_size % 32 != 0)) {
    fail(ErrorCode::kInvalidArgument,
         "a GPTQ group of {} channels is not supported; give --group_size -1 for one group, or a "
         "multiple of 32 such as 128",
         layout.group_size);
  }
}

bool fits_gptq(std::int64_t in, std::int64_t out) { return in % 32 == 0 && out % 32 == 0; }

Rounding::Rounded<GptqRounded> round_gptq(Products& products, const OrderedHessian& hessian,
                                          const TensorView& wanted, const GptqLayout& layout,
                                          int sweeps) {
  const std::int64_t in = wanted.rows();
  const auto size = static_cast<std::int32_t>(layout.channels_per_group(in));
  const GroupList groups = uniform_groups(layout.bits, size, in);
  GptqGrids grids(layout, groups.size(), wanted.columns());
  Rounding rounding(products, hessian, wanted);
  Rounding::Rounded<SlotCodes> rounded = rounding.run(groups, grids, sweeps);
  return {
      {std::move(rounded.matrix), std::move(grids.scales()), std::move(grids.zeros()), layout.v2},
      std::move(rounded.slot_errors),
      rounded.error};
}

}  // namespace bl
