#include "nn/moe.h"

#include <algorithm>

#include "nn/adapted_experts.h"

namespace bl {
namespace {

TensorView one_segment(const TensorView& view) {
  TensorView result = view;
  result.shape = Shape{view.shape[0], 1, view.shape[1]};
  return result;
}

}  // namespace

Moe::Moe(const MoeSpec& spec, Weights weights) : spec_(spec), weights_(std::move(weights)) {
  table_.reserve(weights_.experts.size());
  for (const Expert& expert : weights_.experts) {
    ExpertWeights row;
    row.gate = expert.gate.weight_or_null();
    row.gate_bias = expert.gate.bias();
    row.up = expert.up.weight_or_null();
    row.up_bias = expert.up.bias();
    row.down = expert.down.weight_or_null();
    row.down_bias = expert.down.bias();
    table_.push_back(row);
    for (const Linear* linear : {&expert.gate, &expert.up, &expert.down}) {
      if (linear->id() < 0) continue;
      if (end_linear_ == 0) first_linear_ = linear->id();
      first_linear_ = std::min(first_linear_, linear->id());
      end_linear_ = std::max(end_linear_, linear->id() + 1);
    }
  }
}

void Moe::add_shared(ExecContext& ctx, const TensorView& x, const LayerSink& sink) const {
  if (weights_.shared_gate.empty()) {
    weights_.shared.forward(ctx, x, sink);
    return;
  }
  ArenaScope scope(*ctx.scratch);
  const TensorView y = sink.add ? ctx.scratch->take_f32({x.rows(), spec_.hidden}) : sink.to;
  const TensorView gate = ctx.scratch->take_f32({x.rows(), 1});
  const LinearOutput output{&weights_.shared_gate, gate};
  apply_linears(ctx, x, {&output, 1});
  weights_.shared.forward(ctx, x, {.to = y, .add = false});
  ctx.ops->gate(ctx, {.x = y, .gate = gate});
  if (sink.add) ctx.ops->add(ctx, {.x = sink.to, .y = y, .multiplier = sink.multiplier});
}

void Moe::run_router(ExecContext& ctx, const Input& input, const TensorView& logits) const {
  const LinearOutput output{&weights_.router, logits};
  if (!weights_.router_norm.present()) {
    apply_linears(ctx, input.x, {&output, 1}, spec_.router_multiplier);
    return;
  }
  ArenaScope scope(*ctx.scratch);
  const TensorView x = ctx.scratch->take_f32(input.residual.shape);
  weights_.router_norm.forward(ctx, input.residual, x);
  apply_linears(ctx, x, {&output, 1}, spec_.router_multiplier);
}

bool Moe::is_adapted(const AdapterMix& mix) const {
  return std::any_of(mix.begin(), mix.end(), [&](const WeightedAdapter& one) {
    return one.adapter->touches(first_linear_, end_linear_);
  });
}

// The op computes all rows except those whose adapters change experts.
void Moe::run_experts(ExecContext& ctx, const ExpertsArgs& args) const {
  StepAdapters adapted;
  if (ctx.adapters != nullptr) {
    for (const AdapterRows& run : ctx.adapters->runs) {
      if (is_adapted(*run.mix)) adapted.runs.push_back(run);
    }
  }
  if (adapted.runs.empty()) {
    ctx.ops->experts(ctx, args);
    return;
  }
  const auto run_op = [&](std::int64_t first, std::int64_t end) {
    if (first == end) return;
    ExpertsArgs some = args;
    some.x = slice_rows(args.x, first, end - first);
    some.experts = args.experts + first * args.k;
    some.weights = slice_rows(args.weights, first, end - first);
    some.out = slice_rows(args.out, first, end - first);
    ctx.ops->experts(ctx, some);
  };
  std::int64_t first = 0;
  for (const AdapterRows& run : adapted.runs) {
    run_op(first, run.first);
    first = run.first + run.rows;
  }
  run_op(first, args.x.rows());
  run_adapted_experts(ctx, *backend_, weights_.experts, args, adapted);
}

void Moe::forward(ExecContext& ctx, const Input& input, const LayerSink& sink) const {
  ArenaScope scope(*ctx.scratch);
  const TensorView& x = input.x;
  const std::int64_t tokens = x.rows();
  const TensorView logits = ctx.scratch->take_f32({tokens, spec_.experts});
  const TensorView chosen = ctx.scratch->take(DType::kI32, {tokens, spec_.per_token});
  const TensorView weights = ctx.scratch->take_f32({tokens, spec_.per_token});
  run_router(ctx, input, logits);
  ctx.ops->route(ctx, {.logits = logits,
                       .selection_bias = weights_.selection_bias.view(),
                       .kind = spec_.route,
                       .normalize = spec_.normalize,
                       .multiplier = spec_.multiplier * (sink.add ? sink.multiplier : 1.0f),
                       .normalize_power = spec_.normalize_power,
                       .group_count = spec_.group_count,
                       .group_top = spec_.group_top,
                       .expert_scale = weights_.expert_scale.view(),
                       .experts = chosen.as<std::int32_t>(),
                       .weights = weights,
                       .k = spec_.per_token});
  // Routed experts add to their output: the residual stream, or the shared expert's output, or
  // zeros.
  if (weights_.shared.present()) {
    add_shared(ctx, x, sink);
  } else if (!sink.add) {
    ctx.ops->norm(ctx, {.x = one_segment(x),
                        .out = one_segment(sink.to),
                        .weight = weights_.zeros.view(),
                        .bias = {}});
  }
  ActivateArgs activation;
  activation.kind = spec_.expert.activation;
  activation.limit = spec_.expert.limit;
  activation.limit_after = spec_.expert.limit_after;
  run_experts(ctx, {.x = x,
                    .all = table_,
                    .packed = packed_.get(),
                    .experts = chosen.as<const std::int32_t>(),
                    .weights = weights,
                    .k = spec_.per_token,
                    .fused_gate_up = weights_.fused_gate_up,
                    .weights_on_input = spec_.weights_on_input,
                    .intermediate = spec_.expert.intermediate,
                    .activation = activation,
                    .out = sink.to});
}

std::size_t Moe::work_bytes(const MoeSpec& spec, std::int64_t tokens) {
  const std::size_t bytes = arena_bytes(DType::kF32, tokens * spec.experts) +
                            2 * arena_bytes(DType::kF32, tokens * spec.per_token);
  // These run one after another: the router's norm, the shared expert, routed experts with
  // adapters.
  std::size_t most = adapted_experts_bytes(spec, tokens);
  if (spec.router_norm) most = std::max(most, arena_bytes(DType::kF32, tokens * spec.hidden));
  if (spec.shared) {
    most = std::max(most, FeedForward::work_bytes(*spec.shared, tokens) +
                              arena_bytes(DType::kF32, tokens * spec.hidden) +
                              arena_bytes(DType::kF32, tokens));
  }
  return bytes + most;
}

}  // namespace bl
