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

// How the GEMMs of one call are made, beside what LayerInput says.
struct GemmCall {
  const StagedInput* staged_x = nullptr;
  TensorView deferred_mul = {};
  Epilogue epilogue = {};
  const AttentionArgs* feeds = nullptr;  // attention whose queries the outputs are, or null
};

// Every GEMM of a model is made here, and what adapters add to it.
void run_linears(ExecContext& ctx, const LayerInput& input, std::span<const LinearOutput> outputs,
                 const GemmCall& call) {
  std::array<MatmulOutput, 4> list;
  BL_CHECK(outputs.size() <= list.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    list[i] = {&outputs[i].linear->weight(), outputs[i].out, outputs[i].linear->bias()};
  }
  const NormArgs norm = input.norm != nullptr ? input.norm->args() : NormArgs{};
  MatmulArgs args{.x = input.x,
                  .outputs = std::span(list.data(), outputs.size()),
                  .staged_x = call.staged_x,
                  .prologue = {.partials = input.partials,
                               .sum = input.sum,
                               .norm = input.norm != nullptr ? &norm : nullptr,
                               .deferred_mul = call.deferred_mul},
                  .epilogue = call.epilogue,
                  .prefetch = ctx.prefetch};
  if (call.feeds != nullptr) {
    args.prefetch.attention = call.feeds;
    args.prefetch.feeds_attention = true;
  }
  // Whoever leaves something to a GEMM has asked fusion_of() first, and adapters read the same x.
  BL_CHECK(ctx.may_fuse() ||
           (args.prologue.empty() && args.staged_x == nullptr &&
            args.epilogue.activation == nullptr && args.epilogue.partials_out.empty()));
  ctx.ops->matmul(ctx, args);
  add_lora(ctx, input.x, outputs, call.epilogue.multiplier);
}

}  // namespace

StagedInput take_staged_input(ExecContext& ctx, const Linear& reader, std::int64_t tokens) {
  const std::int64_t width =
      fusion_of(ctx, {.tokens = tokens, .reader = &reader.weight()}).staged_width;
  if (width == 0) return {};
  return {&reader.weight(), ctx.scratch->take(DType::kF16, {tokens, width}),
          ctx.scratch->take_f32({tokens}).as<float>()};
}

void apply_linears(ExecContext& ctx, const LayerInput& input, std::span<const LinearOutput> outputs,
                   float multiplier) {
  run_linears(ctx, input, outputs, {.epilogue = {.multiplier = multiplier}});
}

void apply_query_linears(ExecContext& ctx, const LayerInput& input,
                         std::span<const LinearOutput> outputs, const AttentionArgs* attention) {
  run_linears(ctx, input, outputs, {.feeds = attention});
}

TensorView apply_gated_linears(ExecContext& ctx, const LayerInput& input,
                               std::span<const LinearOutput, 2> outputs,
                               const ActivateArgs& activation, const Linear* reader) {
  GatedMatrices gated{&outputs[0].linear->weight(), &outputs[1].linear->weight(), nullptr};
  if (reader != nullptr) gated.down = &reader->weight();
  const GemmFusion fusion =
      fusion_of(ctx, {.tokens = input.rows(), .gated = gated, .activation = &activation});
  if (!fusion.activation) {
    run_linears(ctx, input, outputs, {});
    ctx.ops->activate(ctx, activation);
    return {};
  }
  ActivateArgs own = activation;
  own.deferred_gate_mul = fusion.deferred_gate_mul;
  run_linears(ctx, input, outputs, {.epilogue = {.activation = &own}});
  return own.deferred_gate_mul ? activation.up : TensorView{};
}

void apply_last_linear(ExecContext& ctx, const LastInput& input, const Linear& linear,
                       const LayerSink& sink) {
  GemmCall call{.staged_x = input.staged_x, .deferred_mul = input.deferred_mul};
  if (sink.add && linear.has_bias() && sink.multiplier != 1.0f) {
    ArenaScope scope(*ctx.scratch);
    const TensorView y = ctx.scratch->take_f32({sink.to.rows(), linear.out()});
    const LinearOutput output{&linear, y};
    run_linears(ctx, input.x, {&output, 1}, call);
    ctx.ops->add(ctx, {.x = sink.to, .y = y, .multiplier = sink.multiplier});
    return;
  }
  const LinearOutput output{&linear, sink.to};
  call.epilogue.accumulate = sink.add;
  if (sink.add) call.epilogue.multiplier = sink.multiplier;
  const bool may_leave_partials = sink.add && sink.stream != nullptr && ctx.may_fuse();
  if (may_leave_partials) {
    const GemmFusionQuery query{.tokens = sink.to.rows(), .adds = &linear.weight()};
    call.epilogue.partials = sink.stream->partials();
    call.epilogue.partials_out = sink.stream->free_partials(fusion_of(ctx, query).partials);
  }
  run_linears(ctx, input.x, {&output, 1}, call);
  if (may_leave_partials) sink.stream->replace_partials(call.epilogue.partials_out);
}

}  // namespace bl
