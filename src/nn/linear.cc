#include "nn/linear.h"

#include <array>

#include "base/check.h"
#include "nn/lora.h"

namespace bl {

std::size_t Linear::bytes() const {
  if (empty()) return 0;
  const TensorView bias = bias_.view();
  return weight_->bytes() +
         (has_bias() ? static_cast<std::size_t>(bias.shape.elements()) * size_of(bias.dtype) : 0);
}

NextWeights next_weights_of(std::initializer_list<const Linear*> linears) {
  NextWeights next;
  for (const Linear* linear : linears) {
    if (linear->empty()) continue;
    BL_CHECK(next.count < NextWeights::kMost);
    next.matrices[next.count++] = &linear->weight();
  }
  return next;
}

namespace {

// How the products of one call are made.
struct ProductRule {
  float multiplier = 1.0f;
  bool accumulate = false;
  const ActivateArgs* activation = nullptr;
  const StagedInput* staged_x = nullptr;
  TensorView x_deferred_mul = {};
  TensorView out_partials = {};
  TensorView partials_out = {};
  const AttentionArgs* attention_behind = nullptr;
};

// Every product of a model is made here, and what adapters add to it.
void run_linears(ExecContext& ctx, const LayerInput& input, std::span<const LinearOutput> outputs,
                 const ProductRule& rule) {
  // Who leaves a norm or an activation to the product asks first whether there are adapters.
  BL_CHECK(ctx.adapters == nullptr ||
           (input.norm == nullptr && rule.activation == nullptr && rule.staged_x == nullptr &&
            rule.x_deferred_mul.empty() && input.partials.empty() && rule.partials_out.empty()));
  std::array<MatmulOutput, 4> list;
  BL_CHECK(outputs.size() <= list.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    list[i] = {&outputs[i].linear->weight(), outputs[i].out, outputs[i].linear->bias()};
  }
  const NormArgs norm = input.norm != nullptr ? input.norm->args() : NormArgs{};
  ctx.ops->matmul(ctx, {.x = input.x,
                        .outputs = std::span(list.data(), outputs.size()),
                        .multiplier = rule.multiplier,
                        .accumulate = rule.accumulate,
                        .staged_x = rule.staged_x,
                        .x_partials = input.partials,
                        .out_partials = rule.out_partials,
                        .partials_out = rule.partials_out,
                        .x_sum = input.sum,
                        .norm = input.norm != nullptr ? &norm : nullptr,
                        .activation = rule.activation,
                        .x_deferred_mul = rule.x_deferred_mul,
                        .attention_behind = rule.attention_behind});
  add_lora(ctx, input.x, outputs, rule.multiplier);
}

// An adapter would have to read all of what products read.
bool may_leave_partials(const ExecContext& ctx) {
  return ctx.ops->partials_left != nullptr && ctx.adapters == nullptr;
}

}  // namespace

bool may_leave_norm_to_products(const ExecContext& ctx) {
  return ctx.ops->matmul_normalises && ctx.adapters == nullptr && !ctx.deterministic;
}

StagedInput take_staged_input(ExecContext& ctx, const Linear& reader, std::int64_t tokens) {
  if (ctx.ops->staged_input_width == nullptr || ctx.adapters != nullptr) return {};
  const std::int64_t width = ctx.ops->staged_input_width(ctx, reader.weight(), tokens);
  if (width == 0) return {};
  return {&reader.weight(), ctx.scratch->take(DType::kF16, {tokens, width}),
          ctx.scratch->take_f32({tokens}).as<float>()};
}

void apply_linears(ExecContext& ctx, const LayerInput& input, std::span<const LinearOutput> outputs,
                   float multiplier) {
  run_linears(ctx, input, outputs, {.multiplier = multiplier});
}

void apply_query_linears(ExecContext& ctx, const LayerInput& input,
                         std::span<const LinearOutput> outputs, const AttentionArgs* behind) {
  run_linears(ctx, input, outputs, {.attention_behind = behind});
}

TensorView apply_gated_linears(ExecContext& ctx, const LayerInput& input,
                               std::span<const LinearOutput, 2> outputs,
                               const ActivateArgs& activation, const Linear* reader) {
  const OpTable& ops = *ctx.ops;
  if (!ops.matmul_activates || ctx.adapters != nullptr || ctx.deterministic) {
    run_linears(ctx, input, outputs, {});
    ops.activate(ctx, activation);
    return {};
  }
  ActivateArgs own = activation;
  if (reader != nullptr && ops.defers_gate_mul != nullptr) {
    const GatedMatrices matrices{&outputs[0].linear->weight(), &outputs[1].linear->weight(),
                                 &reader->weight()};
    own.deferred_gate_mul = ops.defers_gate_mul(ctx, matrices, activation);
  }
  run_linears(ctx, input, outputs, {.activation = &own});
  return own.deferred_gate_mul ? activation.up : TensorView{};
}

void apply_last_linear(ExecContext& ctx, const LastInput& input, const Linear& linear,
                       const LayerSink& sink) {
  if (sink.add && linear.has_bias() && sink.multiplier != 1.0f) {
    ArenaScope scope(*ctx.scratch);
    const TensorView y = ctx.scratch->take_f32({sink.to.rows(), linear.out()});
    const LinearOutput output{&linear, y};
    run_linears(ctx, input.x, {&output, 1},
                {.staged_x = input.staged_x, .x_deferred_mul = input.factor});
    ctx.ops->add(ctx, {.x = sink.to, .y = y, .multiplier = sink.multiplier});
    return;
  }
  const LinearOutput output{&linear, sink.to};
  ProductRule rule{.multiplier = sink.add ? sink.multiplier : 1.0f,
                   .accumulate = sink.add,
                   .staged_x = input.staged_x,
                   .x_deferred_mul = input.factor};
  const bool partials = sink.add && sink.stream != nullptr && may_leave_partials(ctx);
  if (partials) {
    rule.out_partials = sink.stream->partials();
    rule.partials_out =
        sink.stream->free_places(ctx.ops->partials_left(ctx, linear.weight(), sink.to.rows()));
  }
  run_linears(ctx, input.x, {&output, 1}, rule);
  if (partials) sink.stream->replace_partials(rule.partials_out);
}

}  // namespace bl
