#include "convert/host_rounding.h"

#include "convert/fitting_kernels.h"
#include "convert/host_rounding_state.h"
#include "convert/rounding_kernels.h"
#include "format/bit_codec.h"

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

// Slots whose errors are passed on together to the rows behind them; 32 is a multiple of it.
constexpr std::int64_t kRunSlots = 8;

// GPTQ within one group and panel: rounds slot after slot and passes each error on to the rows of
// the block that are still to come.
class GroupPass {
 public:
  GroupPass(RoundingState& state, const TensorView& u_transposed, const SlotBlock& block)
      : state_(state), u_(u_transposed), block_(block) {}

  void run(std::size_t group, std::int64_t first_slot, const ColumnPanel& panel) {
    const SlotGroup& shape = state_.groups[group];
    grids_ = state_.grids.grids(group, panel);
    const std::int64_t end = block_.first_slot + block_.slots;
    for (std::int64_t k = first_slot; k < first_slot + shape.slots; k += kRunSlots) {
      const std::int64_t behind = k + kRunSlots;
      for (std::int64_t i = 0; i < kRunSlots; ++i) {
        round_slot({k + i, i}, shape.bits, panel);
        pass_on({k + i, i}, 1, {k + i + 1, behind}, panel);
      }
      pass_on({k, 0}, kRunSlots, {behind, end}, panel);
      write_steps(k, panel);
    }
    rounding_kernels().sum_squares({.errors = step(first_slot, panel),
                                    .stride = block_.slots,
                                    .columns = panel.columns,
                                    .slots = shape.slots,
                                    .sums = state_.panel_errors.data() +
                                            panel.first / kPanelColumns * state_.in + first_slot});
  }

 private:
  // A slot, and its place in the run.
  struct RunSlot {
    std::int64_t slot = 0;
    std::int64_t place = 0;
  };
  struct SlotRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  float* work(std::int64_t slot, const ColumnPanel& panel) {
    return state_.work.view().row<float>(slot) + panel.first;
  }
  // The place of a slot in state.step, in the first column of the panel.
  float* step(std::int64_t slot, const ColumnPanel& panel) {
    return step_of(state_, block_).row<float>(panel.first) + (slot - block_.first_slot);
  }

  void round_slot(const RunSlot& at, int bits, const ColumnPanel& panel) {
    rounding_kernels().round_slot({.wanted = work(at.slot, panel),
                                   .scale = grids_.scale.data(),
                                   .zero = grids_.zero.data(),
                                   .last = static_cast<float>(code_mask(bits)),
                                   .inverse_pivot = 1.0f / u_.row<const float>(at.slot)[at.slot],
                                   .columns = panel.columns,
                                   .values = state_.values.view().row<float>(at.slot) + panel.first,
                                   .codes = state_.codes(at.slot) + panel.first,
                                   .errors = errors_[at.place]});
  }

  // Passes the errors of `count` slots on to a range of rows.
  void pass_on(const RunSlot& first, std::int64_t count, const SlotRange& rows,
               const ColumnPanel& panel) {
    if (rows.begin >= rows.end) return;
    fitting_kernels().update_panel({.to = work(rows.begin, panel),
                                    .stride = state_.work.view().row_stride,
                                    .factors = u_.row<const float>(rows.begin) + first.slot,
                                    .factor_stride = u_.row_stride,
                                    .rows = rows.end - rows.begin,
                                    .steps = errors_[first.place],
                                    .step_stride = kPanelColumns,
                                    .count = count,
                                    .columns = panel.columns});
  }

  void write_steps(std::int64_t first_slot, const ColumnPanel& panel) {
    float* to = step(first_slot, panel);
    for (std::int64_t c = 0; c < panel.columns; ++c, to += block_.slots) {
      for (std::int64_t i = 0; i < kRunSlots; ++i) to[i] = errors_[i][c];
    }
  }

  RoundingState& state_;
  const TensorView& u_;
  const SlotBlock& block_;
  ColumnGrids grids_;
  float errors_[kRunSlots][kPanelColumns] = {};  // of a run of slots
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
