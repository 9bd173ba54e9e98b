// Coordinate descent: with r = H · (ŵ − w), a change Δ of a column's weights changes its loss by
// 2 Δᵀr + Δᵀ H Δ.

#include <cstring>

#include "convert/round_even.h"
#include "convert/rounding_state.h"
#include "format/exl2_scale.h"
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
      const SlotGroup& group = state_.matrix.groups[g];
      refit_scales(g, row);
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

  // Adds H · Δ for a change of slot r, delta_[c] per column, to the block's residuals.
  void apply(std::int64_t r) {
    for (std::int64_t j = 0; j < block_.slots; ++j) {
      const float factor = h(j, r);
      float* to = residual(j);
      for (std::int64_t c = 0; c < panel_.columns; ++c) to[c] += factor * delta_[c];
    }
  }

  // For each column: gradient and curvature of the loss along its scale, given its codes.
  void scale_terms(std::size_t g, std::int64_t row, float* gradient, float* curvature) {
    const SlotGroup& group = state_.matrix.groups[g];
    const int center = exl2_center(group.bits);
    for (std::int64_t r = row; r < row + group.slots; ++r) {
      float product[kPanelColumns] = {};
      for (std::int64_t s = row; s < row + group.slots; ++s) {
        const float factor = h(r, s);
        const std::uint8_t* other = codes(s);
        for (std::int64_t c = 0; c < panel_.columns; ++c) {
          product[c] += factor * static_cast<float>(static_cast<int>(other[c]) - center);
        }
      }
      const std::uint8_t* own = codes(r);
      for (std::int64_t c = 0; c < panel_.columns; ++c) {
        const auto value = static_cast<float>(static_cast<int>(own[c]) - center);
        gradient[c] += value * residual(r)[c];
        curvature[c] += value * product[c];
      }
    }
  }

  void refit_scales(std::size_t g, std::int64_t row) {
    const auto scales = column_scales(state_.matrix.scale_max[g]);
    std::uint8_t* scale_codes = state_.scale_codes(g) + panel_.first;
    float gradient[kPanelColumns] = {}, curvature[kPanelColumns] = {};
    scale_terms(g, row, gradient, curvature);
    bool changed = false;
    for (std::int64_t c = 0; c < panel_.columns; ++c) {
      const float now = scales[scale_codes[c]];
      float least = 0.0f;
      for (std::uint8_t code = 0; code < scales.size(); ++code) {
        const float change = scales[code] - now;
        const float loss = change * (2.0f * gradient[c] + change * curvature[c]);
        if (loss >= least) continue;
        least = loss;
        scale_codes[c] = code;
        changed = true;
      }
      scale_[c] = scales[scale_codes[c]];
    }
    if (changed) decode_group(g, row);
  }

  void decode_group(std::size_t g, std::int64_t row) {
    const SlotGroup& group = state_.matrix.groups[g];
    const int center = exl2_center(group.bits);
    for (std::int64_t r = row; r < row + group.slots; ++r) {
      for (std::int64_t c = 0; c < panel_.columns; ++c) {
        const auto code = static_cast<float>(static_cast<int>(codes(r)[c]) - center);
        const float value = half_to_float(float_to_half(code * scale_[c]));
        delta_[c] = value - values(r)[c];
        values(r)[c] = value;
      }
      apply(r);
    }
  }

  void change_codes(std::size_t g, std::int64_t r) {
    const int center = exl2_center(state_.matrix.groups[g].bits);
    const float inverse_curvature = 1.0f / h(r, r);
    std::uint8_t* own = codes(r);
    bool changed = false;
    for (std::int64_t c = 0; c < panel_.columns; ++c) {
      delta_[c] = 0.0f;
      if (scale_[c] <= 0.0f) continue;
      const float best = values(r)[c] - residual(r)[c] * inverse_curvature;
      const float code = round_even(std::clamp(best / scale_[c], static_cast<float>(-center),
                                               static_cast<float>(center - 1)));
      const auto stored = static_cast<std::uint8_t>(static_cast<int>(code) + center);
      if (stored == own[c]) continue;
      const float value = half_to_float(float_to_half(code * scale_[c]));
      delta_[c] = value - values(r)[c];
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
  float scale_[kPanelColumns] = {};
  float delta_[kPanelColumns] = {};
};

}  // namespace

void Rounding::sweep_block(RoundingState& state, const SlotBlock& block) {
  state.for_panels(products_, [&](const ColumnPanel& panel) {
    BlockSweep(state, hessian_.h.view(), block, panel).run();
  });
  products_.add(state.work.view(), slice_columns(hessian_.h.view(), block.first_slot, block.slots),
                step_of(state, block));
}

double Rounding::improve(RoundingState& state, int sweeps) {
  Tensor errors = make_host_tensor(DType::kF32, state.values.view().shape);
  const auto find_errors = [&] {
    for (std::int64_t k = 0; k < state.matrix.in; ++k) {
      const float* values = state.values.view().row<float>(k);
      const float* wanted = wanted_.row<const float>(k);
      float* to = errors.view().row<float>(k);
      for (std::int64_t c = 0; c < state.matrix.out; ++c) to[c] = values[c] - wanted[c];
    }
  };
  find_errors();
  std::memset(state.work.view().data, 0,
              static_cast<std::size_t>(state.matrix.in * state.matrix.out) * sizeof(float));
  products_.add(state.work.view(), hessian_.h.view(), transposed(products_, errors.view()).view());
  for (int i = 0; i < sweeps; ++i) {
    for (const SlotBlock& block : state.blocks) sweep_block(state, block);
  }
  find_errors();
  double loss = 0.0;
  for (std::int64_t k = 0; k < state.matrix.in; ++k) {
    const float* error = errors.view().row<float>(k);
    const float* residual = state.work.view().row<float>(k);
    for (std::int64_t c = 0; c < state.matrix.out; ++c) {
      loss += static_cast<double>(error[c]) * residual[c];
    }
  }
  return loss;
}

}  // namespace bl
