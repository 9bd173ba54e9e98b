#include "convert/rounding.h"

#include <cstring>

#include "base/check.h"
#include "convert/exl2_grids.h"
#include "convert/round_even.h"
#include "convert/rounding_state.h"
#include "format/bit_codec.h"
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
                             std::int64_t out, GroupGrids& scales)
    : grids(scales), blocks(slot_blocks(groups)) {
  const auto in = static_cast<std::int64_t>(hessian.perm.size());
  std::int64_t longest = 0;
  for (const SlotBlock& block : blocks) longest = std::max(longest, block.slots);
  matrix = {.in = in, .out = out, .groups = groups, .perm = hessian.perm};
  matrix.codes.resize(static_cast<std::size_t>(in * out));
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
    grids_ = state_.grids.grids(group, panel);
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
    const auto last = static_cast<float>(code_mask(bits));
    const float* wanted = work(k, panel);
    float* values = state_.values.view().row<float>(k) + panel.first;
    std::uint8_t* codes = state_.codes(k) + panel.first;
    const float inverse_pivot = 1.0f / hessian_.u_transposed.view().row<const float>(k)[k];
    float* step = step_of(state_, block_).row<float>(panel.first) + (k - block_.first_slot);
    double sum = 0.0;
    for (std::int64_t c = 0; c < panel.columns; ++c) {
      const float scale = grids_.scale[static_cast<std::size_t>(c)];
      const float zero = grids_.zero[static_cast<std::size_t>(c)];
      const float exact = scale > 0.0f ? wanted[c] / scale : 0.0f;
      const float code = round_even(std::clamp(exact, -zero, last - zero));
      values[c] = half_to_float(float_to_half(code * scale));
      codes[c] = static_cast<std::uint8_t>(static_cast<int>(code + zero));
      error_[c] = (wanted[c] - values[c]) * inverse_pivot;
      step[c * block_.slots] = error_[c];
      sum += static_cast<double>(error_[c]) * error_[c];
    }
    state_.panel_errors[static_cast<std::size_t>(panel.first / kPanelColumns * state_.matrix.in +
                                                 k)] = sum;
  }

  void pass_on(std::int64_t k, const ColumnPanel& panel) {
    const std::int64_t rows = block_.first_slot + block_.slots - (k + 1);
    if (rows == 0) return;
    const TensorView& u = hessian_.u_transposed.view();
    fitting_kernels().update_panel({.to = work(k + 1, panel),
                                    .stride = state_.work.view().row_stride,
                                    .factors = u.row<const float>(k + 1) + k,
                                    .factor_stride = u.row_stride,
                                    .rows = rows,
                                    .step = error_,
                                    .columns = panel.columns});
  }

  RoundingState& state_;
  const OrderedHessian& hessian_;
  const SlotBlock& block_;
  ColumnGrids grids_;
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
    state.grids.search(
        products_, g,
        {state.work.view().row<float>(slot), state.work.view().row_stride, importance});
    for_panels(products_, state.matrix.out, [&](const ColumnPanel& panel) {
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

Rounding::Rounded<SlotCodes> Rounding::run(const GroupList& groups, GroupGrids& grids, int sweeps) {
  RoundingState state(groups, hessian_, wanted_.columns(), grids);
  const std::size_t row_bytes = static_cast<std::size_t>(wanted_.columns()) * sizeof(float);
  for (std::int64_t k = 0; k < wanted_.rows(); ++k) {
    std::memcpy(state.work.view().row<float>(k), wanted_.row<const float>(k), row_bytes);
  }
  for (const SlotBlock& block : state.blocks) round_block(state, block);
  Rounded<SlotCodes> result;
  result.slot_errors.assign(static_cast<std::size_t>(state.matrix.in), 0.0);
  for (std::size_t i = 0; i < state.panel_errors.size(); ++i) {
    result.slot_errors[i % result.slot_errors.size()] += state.panel_errors[i];
  }
  for (const double error : result.slot_errors) result.error += error;
  if (sweeps > 0) result.error = improve(state, sweeps);
  result.matrix = std::move(state.matrix);
  return result;
}

Rounding::Result Rounding::run(const GroupList& groups, int sweeps) {
  Exl2Grids grids(groups, wanted_.columns());
  Rounded<SlotCodes> rounded = run(groups, grids, sweeps);
  return {{std::move(rounded.matrix), std::move(grids.scale_codes()), std::move(grids.scale_max())},
          std::move(rounded.slot_errors),
          rounded.error};
}

}  // namespace bl
