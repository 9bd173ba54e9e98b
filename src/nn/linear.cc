#include "nn/linear.h"

#include <array>

#include "base/check.h"

namespace bl {

std::size_t Linear::bytes() const {
  if (empty()) return 0;
  const TensorView bias = bias_.view();
  return weight_->bytes() +
         (has_bias() ? static_cast<std::size_t>(bias.shape.elements()) * size_of(bias.dtype) : 0);
}

namespace {

void run_linears(ExecContext& ctx, const LayerInput& input, std::span<const LinearOutput> outputs,
                 float multiplier, const ActivateArgs* activation) {
  std::array<MatmulOutput, 4> list;
  BL_CHECK(outputs.size() <= list.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    list[i] = {&outputs[i].linear->weight(), outputs[i].out, outputs[i].linear->bias()};
  }
  const NormArgs norm = input.norm != nullptr ? input.norm->args() : NormArgs{};
  ctx.ops->matmul(ctx, {.x = input.x,
                        .outputs = std::span(list.data(), outputs.size()),
                        .multiplier = multiplier,
                        .accumulate = false,
                        .norm = input.norm != nullptr ? &norm : nullptr,
                        .activation = activation});
}

}  // namespace

void apply_linears(ExecContext& ctx, const LayerInput& input, std::span<const LinearOutput> outputs,
                   float multiplier) {
  run_linears(ctx, input, outputs, multiplier, nullptr);
}

void apply_gated_linears(ExecContext& ctx, const LayerInput& input,
                         std::span<const LinearOutput, 2> outputs, const ActivateArgs& activation) {
  const bool fused = ctx.ops->matmul_activates;
  run_linears(ctx, input, outputs, 1.0f, fused ? &activation : nullptr);
  if (!fused) ctx.ops->activate(ctx, activation);
}

void apply_last_linear(ExecContext& ctx, const TensorView& x, const Linear& linear,
                       const LayerSink& sink) {
  if (!sink.add) {
    const LinearOutput output{&linear, sink.to};
    apply_linears(ctx, x, {&output, 1});
    return;
  }
  if (linear.has_bias() && sink.multiplier != 1.0f) {
    ArenaScope scope(*ctx.scratch);
    const TensorView y = ctx.scratch->take_f32({x.rows(), linear.out()});
    const LinearOutput output{&linear, y};
    apply_linears(ctx, x, {&output, 1});
    ctx.ops->add(ctx, {.x = sink.to, .y = y, .multiplier = sink.multiplier});
    return;
  }
  const MatmulOutput output{&linear.weight(), sink.to, linear.bias()};
  ctx.ops->matmul(
      ctx, {.x = x, .outputs = {&output, 1}, .multiplier = sink.multiplier, .accumulate = true});
}

}  // namespace bl
