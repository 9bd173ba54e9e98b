#include "convert/host_rounding.h"

#include "convert/fitting_kernels.h"
#include "convert/host_rounding_state.h"
#include "format/bit_codec.h"
#include "ops/grid_math.h"
#include "tensor/float16.h"

namespace bl {

std::vector<SlotBlock> slot_blocks(std::span<const SlotGroup> groups) {
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

RoundingState::RoundingState(const RoundArgs& args, GroupGrids& scales)
    : grids(scales),
      groups(args.groups),
      in(args.wanted.rows()),
      out(args.wanted.columns()),
      blocks(slot_blocks(args.groups)) {
  std::int64_t longest = 0;
  for (const SlotBlock& block : blocks) longest = std::max(longest, block.slots);
  all_codes.resize(static_cast<std::size_t>(in * out));
  values = make_host_tensor(DType::kF32, {in, out});
  work = make_host_tensor(DType::kF32, {in, out});
  step = make_host_tensor(DType::kF32, {out, longest});
  const std::int64_t panels = (out + kPanelColumns - 1) / kPanelColumns;
  panel_errors.resize(static_cast<std::size_t>(panels * in));
}

TensorView step_of(RoundingState& state, const SlotBlock& block) {
  return view_of(state.step.view().as<float>(), {state.out, block.slots});
}

namespace {

// GPTQ within one group and panel: rounds slot after slot and passes each error on to the rows of
// the block that are still to come.
class GroupPass {
 public:
  GroupPass(RoundingState& state, const TensorView& u_transposed, const SlotBlock& block)
      : state_(state), u_(u_transposed), block_(block) {}

  void run(std::size_t group, std::int64_t first_slot, const ColumnPanel& panel) {
    const SlotGroup& shape = state_.groups[group];
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
    const float inverse_pivot = 1.0f / u_.row<const float>(k)[k];
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
    state_.panel_errors[static_cast<std::size_t>(panel.first / kPanelColumns * state_.in + k)] =
        sum;
  }

  void pass_on(std::int64_t k, const ColumnPanel& panel) {
    const std::int64_t rows = block_.first_slot + block_.slots - (k + 1);
    if (rows == 0) return;
    fitting_kernels().update_panel({.to = work(k + 1, panel),
                                    .stride = state_.work.view().row_stride,
                                    .factors = u_.row<const float>(k + 1) + k,
                                    .factor_stride = u_.row_stride,
                                    .rows = rows,
                                    .step = error_,
                                    .columns = panel.columns});
  }

  RoundingState& state_;
  const TensorView& u_;
  const SlotBlock& block_;
  ColumnGrids grids_;
  float error_[kPanelColumns] = {};
};

}  // namespace

HostRounding::HostRounding(HostFitting& fitting, const RoundArgs& args)
    : fitting_(fitting), threads_(fitting.threads()), args_(args) {}

void HostRounding::round_block(RoundingState& state, const SlotBlock& block) {
  const TensorView& u = args_.u_transposed;
  std::int64_t slot = block.first_slot;
  for (std::size_t g = block.first_group; g < block.end_group; ++g) {
    const SlotGroup& group = state.groups[g];
    const std::span<const float> importance(args_.importance.as<const float>() + slot,
                                            static_cast<std::size_t>(group.slots));
    state.grids.search(
        threads_, g,
        {state.work.view().row<float>(slot), state.work.view().row_stride, importance});
    for_panels(threads_, state.out,
               [&](const ColumnPanel& panel) { GroupPass(state, u, block).run(g, slot, panel); });
    slot += group.slots;
  }
  const std::int64_t rest = state.in - slot;
  if (rest == 0) return;
  fitting_.add_product(
      {.out = slice_rows(state.work.view(), slot, rest),
       .a = slice_columns(slice_rows(u, slot, rest), block.first_slot, block.slots),
       .b = step_of(state, block),
       .b_transposed = true,
       .multiplier = -1.0f});
}

RoundResult HostRounding::run(GroupGrids& grids) {
  RoundingState state(args_, grids);
  fitting_.copy(state.work.view(), args_.wanted);
  for (const SlotBlock& block : state.blocks) round_block(state, block);
  RoundResult result;
  result.slot_errors.assign(static_cast<std::size_t>(state.in), 0.0);
  for (std::size_t i = 0; i < state.panel_errors.size(); ++i) {
    result.slot_errors[i % result.slot_errors.size()] += state.panel_errors[i];
  }
  for (const double error : result.slot_errors) result.error += error;
  if (args_.sweeps > 0) result.error = improve(state);
  result.codes = std::move(state.all_codes);
  return result;
}

}  // namespace bl
