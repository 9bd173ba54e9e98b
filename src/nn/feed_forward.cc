#include "nn/feed_forward.h"

#include <array>

namespace bl {

void FeedForward::forward(ExecContext& ctx, const LayerInput& x, const LayerSink& sink) const {
  ArenaScope scope(*ctx.scratch);
  const std::int64_t width = spec_.intermediate;
  const TensorView inner = ctx.scratch->take_f32({x.rows(), spec_.gated ? 2 * width : width});
  const TensorView first = slice_columns(inner, 0, width);
  const TensorView second = spec_.gated ? slice_columns(inner, width, width) : TensorView{};
  const StagedInput left = take_staged_input(ctx, weights_.down, x.rows());
  const ActivateArgs activation{.gate = first,
                                .up = second,
                                .out = first,
                                .kind = spec_.activation,
                                .limit = spec_.limit,
                                .limit_after = spec_.limit_after,
                                .xielu_alpha_p = weights_.xielu_alpha_p,
                                .xielu_alpha_n = weights_.xielu_alpha_n,
                                .xielu_beta = weights_.xielu_beta,
                                .xielu_eps = weights_.xielu_eps,
                                .staged_out = left.rows.empty() ? nullptr : &left};
  LastInput last{first, left};
  ExecContext first_ctx = ctx;
  first_ctx.prefetch.weights = next_weights_of({&weights_.down});
  if (spec_.gated && weights_.gate_up.empty()) {
    const std::array<LinearOutput, 2> outputs{{{&weights_.gate, first}, {&weights_.up, second}}};
    last.deferred_mul = apply_gated_linears(first_ctx, x, outputs, activation, &weights_.down);
  } else {
    const bool fused = !weights_.gate_up.empty();
    const LinearOutput output{fused ? &weights_.gate_up : &weights_.up, fused ? inner : first};
    apply_linears(first_ctx, x, {&output, 1});
    ctx.ops->activate(ctx, activation);
  }
  apply_last_linear(ctx, last, weights_.down, sink);
}

std::size_t FeedForward::work_bytes(const FeedForwardSpec& spec, std::int64_t tokens) {
  return arena_bytes(DType::kF32, tokens * spec.intermediate * (spec.gated ? 2 : 1));
}

}  // namespace bl
