// Coordinate descent: with r = H · (ŵ − w), a change Δ of a column's weights changes its loss by
// 2 Δᵀr + Δᵀ H Δ.

#include <cstring>

#include "convert/fitting_kernels.h"
#include "convert/host_rounding.h"
#include "convert/host_rounding_state.h"
#include "format/bit_codec.h"
#include "ops/grid_math.h"
#include "tensor/float16.h"

namespace bl {
namespace {

// One block and panel. Keeps r of the block's own slots up to date; the other slots get theirs by a
// GEMM afterwards.
class BlockSweep {
 public:
  BlockSweep(RoundingState& state, const TensorView& h, const SlotBlock& block,
             const ColumnPanel& panel)
      : state_(state), h_(h), block_(block), panel_(panel) {
    residual_.resize(static_cast<std::size_t>(block.slots * kPanelColumns));
    before_.resize(residual_.size());
    for (std::int64_t r = 0; r < block.slots; ++r) {
      const std::size_t bytes = static_cast<std::size_t>(panel.columns) * sizeof(float);
      std::memcpy(residual(r), state.work.view().row<float>(block.first_slot + r) + panel.first,
                  bytes);
      std::memcpy(before_.data() + r * kPanelColumns, values(r), bytes);
    }
  }

  void run() {
    std::int64_t row = 0;
    for (std::size_t g = block_.first_group; g < block_.end_group; ++g) {
      const SlotGroup& group = state_.groups[g];
      refit(g, row);
      for (std::int64_t r = row; r < row + group.slots; ++r) change_codes(g, r);
      row += group.slots;
    }
    const TensorView step = step_of(state_, block_);
    for (std::int64_t c = 0; c < panel_.columns; ++c) {
      float* to = step.row<float>(panel_.first + c);
      for (std::int64_t r = 0; r < block_.slots; ++r) {
        to[r] = values(r)[c] - before_[static_cast<std::size_t>(r * kPanelColumns + c)];
      }
    }
  }

 private:
  float* residual(std::int64_t r) { return residual_.data() + r * kPanelColumns; }
  float* values(std::int64_t r) {
    return state_.values.view().row<float>(block_.first_slot + r) + panel_.first;
  }
  std::uint8_t* codes(std::int64_t r) { return state_.codes(block_.first_slot + r) + panel_.first; }
  // H between two slots of the block.
  float h(std::int64_t a, std::int64_t b) const {
    return h_.row<const float>(block_.first_slot + a)[block_.first_slot + b];
  }

  // Adds H · Δ for a change of slot r, minus_delta_[c] = −Δ per column, to the block's residuals.
  void apply(std::int64_t r) {
    const float* row = h_.row<const float>(block_.first_slot + r);  // H is symmetric
    fitting_kernels().update_panel({.to = residual(0),
                                    .stride = kPanelColumns,
                                    .factors = row + block_.first_slot,
                                    .factor_stride = 1,
                                    .rows = block_.slots,
                                    .steps = minus_delta_,
                                    .columns = panel_.columns});
  }

  // q − zero of each column in slot r.
  void read_steps(std::int64_t r, ColumnLanes& steps) {
    const std::uint8_t* own = codes(r);
    for (std::size_t c = 0; c < static_cast<std::size_t>(panel_.columns); ++c) {
      steps[c] = static_cast<float>(own[c]) - grids_.zero[c];
    }
  }

  // How the loss depends on the scale and the zero point of each column, given its codes.
  RefitTerms refit_terms(std::int64_t row, std::int32_t slots) {
    RefitTerms terms;
    std::vector<ColumnLanes> steps(static_cast<std::size_t>(slots));
    for (std::int64_t r = 0; r < slots; ++r)
      read_steps(row + r, steps[static_cast<std::size_t>(r)]);
    for (std::int64_t r = row; r < row + slots; ++r) {
      ColumnLanes product{};
      float row_sum = 0.0f;
      for (std::int64_t s = row; s < row + slots; ++s) {
        const float factor = h(r, s);
        const ColumnLanes& other = steps[static_cast<std::size_t>(s - row)];
        for (std::size_t c = 0; c < other.size(); ++c) product[c] += factor * other[c];
        row_sum += factor;
      }
      const ColumnLanes& own = steps[static_cast<std::size_t>(r - row)];
      const float* gradient = residual(r);
      for (std::size_t c = 0; c < own.size(); ++c) {
        terms.by_scale[c] += own[c] * gradient[c];
        terms.by_shift[c] += gradient[c];
        terms.scale_scale[c] += own[c] * product[c];
        terms.scale_shift[c] += own[c] * row_sum;
      }
      terms.shift_shift += row_sum;
    }
    return terms;
  }

  void refit(std::size_t g, std::int64_t row) {
    grids_ = state_.grids.grids(g, panel_);
    const bool changed = state_.grids.refit(g, panel_, refit_terms(row, state_.groups[g].slots));
    if (!changed) return;
    grids_ = state_.grids.grids(g, panel_);
    decode_group(g, row);
  }

  void decode_group(std::size_t g, std::int64_t row) {
    const SlotGroup& group = state_.groups[g];
    ColumnLanes steps;
    for (std::int64_t r = row; r < row + group.slots; ++r) {
      read_steps(r, steps);
      for (std::int64_t c = 0; c < panel_.columns; ++c) {
        const auto lane = static_cast<std::size_t>(c);
        const float value = half_to_float(float_to_half(steps[lane] * grids_.scale[lane]));
        minus_delta_[c] = values(r)[c] - value;
        values(r)[c] = value;
      }
      apply(r);
    }
  }

  void change_codes(std::size_t g, std::int64_t r) {
    const auto last = static_cast<float>(code_mask(state_.groups[g].bits));
    const float inverse_curvature = 1.0f / h(r, r);
    std::uint8_t* own = codes(r);
    bool changed = false;
    for (std::int64_t c = 0; c < panel_.columns; ++c) {
      minus_delta_[c] = 0.0f;
      const float scale = grids_.scale[static_cast<std::size_t>(c)];
      const float zero = grids_.zero[static_cast<std::size_t>(c)];
      if (scale <= 0.0f) continue;
      const float best = values(r)[c] - residual(r)[c] * inverse_curvature;
      const float code = round_even(std::clamp(best / scale, -zero, last - zero));
      const auto stored = static_cast<std::uint8_t>(static_cast<int>(code + zero));
      if (stored == own[c]) continue;
      const float value = half_to_float(float_to_half(code * scale));
      minus_delta_[c] = values(r)[c] - value;
      values(r)[c] = value;
      own[c] = stored;
      changed = true;
    }
    if (changed) apply(r);
  }

  RoundingState& state_;
  const TensorView& h_;
  const SlotBlock& block_;
  const ColumnPanel& panel_;
  std::vector<float> residual_;  // [block slots, kPanelColumns]
  std::vector<float> before_;    // the values before the sweep
  ColumnGrids grids_;            // of the group that is being worked on
  float minus_delta_[kPanelColumns] = {};
};

}  // namespace

void HostRounding::sweep_block(RoundingState& state, const SlotBlock& block) {
  for_panels(threads_, state.out,
             [&](const ColumnPanel& panel) { BlockSweep(state, args_.h, block, panel).run(); });
  fitting_.add_product({.out = state.work.view(),
                        .a = slice_columns(args_.h, block.first_slot, block.slots),
                        .b = step_of(state, block),
                        .b_transposed = true});
}

double HostRounding::improve(RoundingState& state) {
  const Tensor errors = make_host_tensor(DType::kF32, state.values.view().shape);
  const auto find_errors = [&] {
    fitting_.copy(errors.view(), state.values.view());
    fitting_.add_scaled(errors.view(), args_.wanted, -1.0f);
  };
  find_errors();
  fitting_.clear(state.work.view());
  fitting_.add_product({.out = state.work.view(), .a = args_.h, .b = errors.view()});
  for (int i = 0; i < args_.sweeps; ++i) {
    for (const SlotBlock& block : state.blocks) sweep_block(state, block);
  }
  find_errors();
  return fitting_.dot(errors.view(), state.work.view(), {});
}

}  // namespace bl
