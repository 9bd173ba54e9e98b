#pragma once
// Rounding for GPTQ checkpoints (docs/formats/gptq.md §3–7).

#include <algorithm>
#include <string>

#include "convert/rounding.h"

namespace bl {

// What a GPTQ checkpoint holds, and how its codes are found.
struct GptqLayout {
  int bits = 4;                   // 2, 3, 4 or 8
  std::int64_t group_size = 128;  // channels that share a scale; −1: all
  bool symmetric = true;          // the zero point of every column is 2^(bits − 1)
  // Groups are made of channels by falling diagonal, and g_idx tells which; otherwise a group is
  // `group_size` neighbours.
  bool act_order = false;
  // Without act_order: channels are rounded as they come, not the important groups first.
  bool natural_order = false;
  bool v2 = false;  // zero points are stored as they are, not less one
  // Scales span a column's smallest and largest weight, as the method's first code has them, and
  // nothing is searched or refitted. For comparisons.
  bool min_max = false;

  std::int64_t channels_per_group(std::int64_t in) const {
    return group_size == -1 ? in : std::min(group_size, in);
  }
  // Whether the last group of an input is shorter than `group_size`. The format allows that, but
  // some readers do not.
  bool has_short_group(std::int64_t in) const { return group_size != -1 && in % group_size != 0; }
  SlotOrder slot_order(std::int64_t in) const;
};

// Throws kInvalidArgument for settings that the format does not have, naming the option.
void check_gptq_layout(const GptqLayout& layout);
// Whether a linear of these sizes can be stored: words hold runs of 32 codes in both directions.
bool fits_gptq(std::int64_t in, std::int64_t out);

// A linear after rounding for GPTQ. A code q stands for RN16((q − zero) · scale).
struct GptqRounded : SlotCodes {
  std::vector<std::uint16_t> scales = {};  // [groups, out] of binary16 bits
  // [groups, out]: from 0, or from 1 where the file stores zero points less one, to 2^bits − 1.
  std::vector<std::uint8_t> zeros = {};
  bool v2 = false;
};

// The grids that a layout allows.
GptqGridRules grid_rules(const GptqLayout& layout);

// Rounds wanted weights, F32 [in, out] in slot order, with a Hessian in layout.slot_order().
Rounding::Rounded<GptqRounded> round_gptq(Products& products, const OrderedHessian& hessian,
                                          const TensorView& wanted, const GptqLayout& layout,
                                          int sweeps);

}  // namespace bl
