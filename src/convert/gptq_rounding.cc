#include "convert/gptq_rounding.h"

#include "base/error.h"
#include "format/bit_codec.h"
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

GptqGridRules grid_rules(const GptqLayout& layout) {
  GptqGridRules rules;
  rules.bits = layout.bits;
  rules.symmetric = layout.symmetric;
  rules.min_max = layout.min_max;
  // A zero point of 0 less one does not fit its field, and readers disagree about what is stored
  // then (docs/formats/gptq.md §5.3), so that v1 does without it.
  rules.least_zero = layout.v2 ? 0.0f : 1.0f;
  rules.largest_zero = static_cast<float>(code_mask(layout.bits));
  if (layout.symmetric) {
    rules.least_zero = rules.largest_zero = static_cast<float>(1 << (layout.bits - 1));
  }
  return rules;
}

Rounding::Rounded<GptqRounded> round_gptq(Products& products, const OrderedHessian& hessian,
                                          const TensorView& wanted, const GptqLayout& layout,
                                          int sweeps) {
  const std::int64_t in = wanted.rows();
  const auto size = static_cast<std::int32_t>(layout.channels_per_group(in));
  const GroupList groups = uniform_groups(layout.bits, size, in);
  Rounding rounding(products, hessian, wanted);
  RoundResult result = rounding.run(groups, grid_rules(layout), sweeps);
  GptqRounded matrix{rounding.slot_codes(groups, result), std::move(result.scales),
                     std::move(result.column_codes), layout.v2};
  return {std::move(matrix), std::move(result.slot_errors), result.error};
}

}  // namespace bl
