#include "convert/rounding.h"

#include <cstring>

#include "base/check.h"
#include "convert/round_even.h"
#include "convert/rounding_state.h"
#include "format/exl2_scale.h"
#include "tensor/float16.h"

namespace bl {

std::vector<SlotBlock> slot_blocks(const GroupList& groups) {
  std::vector<SlotBlock> blocks;
  std::int64_t slot = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t slots = groups[g].slots;
    if (blocks.empty() || blocks.back().slots + slots > kBlockSlots) {
      blocks.push_back({g, g, slot, 0});
    }
    blocks.back().end_group = g + 1;
    blocks.back().slots += slots;
    slot += slots;
  }
  return blocks;
}

RoundingState::RoundingState(const GroupList& groups, const OrderedHessian& hessian,
                             std::int64_t out)
    : blocks(slot_blocks(groups)) {
  const auto in = static_cast<std::int64_t>(hessian.perm.size());
  std::int64_t longest = 0;
  for (const SlotBlock& block : blocks) longest = std::max(longest, block.slots);
  matrix = {.in = in, .out = out, .groups = groups, .perm = hessian.perm};
  matrix.codes.resize(static_cast<std::size_t>(in * out));
  matrix.scale_codes.resize(groups.size() * static_cast<std::size_t>(out));
  matrix.scale_max.resize(groups.size());
  values = make_host_tensor(DType::kF32, {in, out});
  work = make_host_tensor(DType::kF32, {in, out});
  step = make_host_tensor(DType::kF32, {out, longest});
  const std::int64_t panels = (out + kPanelColumns - 1) / kPanelColumns;
  panel_errors.resize(static_cast<std::size_t>(panels * in));
}

TensorView step_of(RoundingState& state, const SlotBlock& block) {
  return view_of(state.step.view().as<float>(), {state.matrix.out, block.slots});
}

namespace {

// GPTQ within one group and panel: rounds slot after slot and passes each error on to the rows of
// the block that are still to come.
class GroupPass {
 public:
  GroupPass(RoundingState& state, const OrderedHessian& hessian, const SlotBlock& block)
      : state_(state), hessian_(hessian), block_(block) {}

  void run(std::size_t group, std::int64_t first_slot, const ColumnPanel& panel) {
    const SlotGroup& shape = state_.matrix.groups[group];
    const auto scales = column_scales(state_.matrix.scale_max[group]);
    const std::uint8_t* codes = state_.scale_codes(group) + panel.first;
    for (std::int64_t c = 0; c < panel.columns; ++c) scale_[c] = scales[codes[c]];
    for (std::int64_t k = first_slot; k < first_slot + shape.slots; ++k) {
      round_slot(k, shape.bits, panel);
      pass_on(k, panel);
    }
  }

 private:
  float* work(std::int64_t slot, const ColumnPanel& panel) {
    return state_.work.view().row<float>(slot) + panel.first;
  }

  void round_slot(std::int64_t k, int bits, const ColumnPanel& panel) {
    const int center = exl2_center(bits);
    const float* wanted = work(k, panel);
    float* values = state_.values.view().row<float>(k) + panel.first;
    std::uint8_t* codes = state_.codes(k) + panel.first;
    const float inverse_pivot = 1.0f / hessian_.u_transposed.view().row<const float>(k)[k];
    float* step = step_of(state_, block_).row<float>(panel.first) + (k - block_.first_slot);
    double sum = 0.0;
    for (std::int64_t c = 0; c < panel.columns; ++c) {
      const float exact = scale_[c] > 0.0f ? wanted[c] / scale_[c] : 0.0f;
      const float code = round_even(
          std::clamp(exact, static_cast<float>(-center), static_cast<float>(center - 1)));
      values[c] = half_to_float(float_to_half(code * scale_[c]));
      codes[c] = static_cast<std::uint8_t>(static_cast<int>(code) + center);
      error_[c] = (wanted[c] - values[c]) * inverse_pivot;
      step[c * block_.slots] = error_[c];
      sum += static_cast<double>(error_[c]) * error_[c];
    }
    state_.panel_errors[static_cast<std::size_t>(panel.first / kPanelColumns * state_.matrix.in +
                                                 k)] = sum;
  }

  void pass_on(std::int64_t k, const ColumnPanel& panel) {
    for (std::int64_t j = k + 1; j < block_.first_slot + block_.slots; ++j) {
      const float factor = hessian_.u_transposed.view().row<const float>(j)[k];
      float* to = work(j, panel);
      for (std::int64_t c = 0; c < panel.columns; ++c) to[c] -= factor * error_[c];
    }
  }

  RoundingState& state_;
  const OrderedHessian& hessian_;
  const SlotBlock& block_;
  float scale_[kPanelColumns] = {};
  float error_[kPanelColumns] = {};
};

}  // namespace

Rounding::Rounding(Products& products, const OrderedHessian& hessian, const TensorView& wanted)
    : products_(products), hessian_(hessian), wanted_(wanted) {
  BL_CHECK(wanted.rows() == std::ssize(hessian.perm) && wanted.columns() % 32 == 0);
}

void Rounding::round_block(RoundingState& state, const SlotBlock& block) {
  std::int64_t slot = block.first_slot;
  for (std::size_t g = block.first_group; g < block.end_group; ++g) {
    const SlotGroup& group = state.matrix.groups[g];
    const std::span<const float> importance(hessian_.importance.data() + slot,
                                            static_cast<std::size_t>(group.slots));
    const auto panel_of = [&](const ColumnPanel& panel) {
      return GroupPanel{state.work.view().row<float>(slot) + panel.first,
                        state.work.view().row_stride, panel.columns, importance, group.bits};
    };
    ErrorCurves curves(state.matrix.out);
    state.for_panels(products_, [&](const ColumnPanel& panel) {
      measure_curves(panel_of(panel), panel.first, curves);
    });
    state.matrix.scale_max[g] = choose_scale_max(curves);
    state.for_panels(products_, [&](const ColumnPanel& panel) {
      choose_scale_codes(panel_of(panel), panel.first, curves, state.matrix.scale_max[g],
                         state.scale_codes(g) + panel.first);
      GroupPass(state, hessian_, block).run(g, slot, panel);
    });
    slot += group.slots;
  }
  const std::int64_t rest = state.matrix.in - slot;
  if (rest == 0) return;
  products_.add(slice_rows(state.work.view(), slot, rest),
                slice_columns(slice_rows(hessian_.u_transposed.view(), slot, rest),
                              block.first_slot, block.slots),
                step_of(state, block), -1.0f);
}

Rounding::Result Rounding::run(const GroupList& groups, int sweeps) {
  RoundingState state(groups, hessian_, wanted_.columns());
  const std::size_t row_bytes = static_cast<std::size_t>(wanted_.columns()) * sizeof(float);
  for (std::int64_t k = 0; k < wanted_.rows(); ++k) {
    std::memcpy(state.work.view().row<float>(k), wanted_.row<const float>(k), row_bytes);
  }
  for (const SlotBlock& block : state.blocks) round_block(state, block);
  Result result;
  result.slot_errors.assign(static_cast<std::size_t>(state.matrix.in), 0.0);
  for (std::size_t i = 0; i < state.panel_errors.size(); ++i) {
    result.slot_errors[i % result.slot_errors.size()] += state.panel_errors[i];
  }
  for (const double error : result.slot_errors) result.error += error;
  if (sweeps > 0) result.error = improve(state, sweeps);
  result.matrix = std::move(state.matrix);
  return result;
}

}  // namespace bl
