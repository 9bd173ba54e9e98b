#include "nn/attention.h"

#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace bl {
namespace {

TensorView as_heads(const TensorView& columns, std::int64_t heads, std::int64_t head_dim) {
  TensorView view = columns;
  view.shape = Shape{columns.shape[0], heads, head_dim};
  return view;
}

TensorView as_columns(const TensorView& heads) {
  TensorView view = heads;
  view.shape = Shape{heads.shape[0], heads.shape[1] * heads.shape[2]};
  return view;
}

void normalise_one(ExecContext& ctx, const Norm& norm, bool across_heads, const TensorView& heads) {
  const TensorView view = across_heads ? as_columns(heads) : heads;
  norm.forward(ctx, view, view);
}

}  // namespace

// The result of attention: an input in binary16 for the output projection, or F32 [tokens, heads,
// head_dim].
struct Attention::Result {
  StagedInput half;
  TensorView out;
};

struct Attention::Heads {
  TensorView q;     // [tokens, heads, head_dim]
  TensorView k;     // [tokens, kv_heads, head_dim]
  TensorView v;     // [tokens, kv_heads, head_dim]
  TensorView gate;  // [tokens, gates] or empty
  TensorView all;   // [tokens, widths of q, k and v]: all three side by side
};

AttentionArgs Attention::attention_args(const StepInputs& step, const TensorView& q) const {
  return {.q = q,
          .out = {},
          .cache = *step.kv,
          .sequences = step.sequences,
          .plan = step.attention,
          .scale = spec_.scale,
          .softcap = spec_.softcap,
          .window = spec_.window,
          .sinks = weights_.sinks.view(),
          .alibi_slopes = weights_.alibi_slopes.view(),
          .staged_out = nullptr,
          .past_is_new = step.keys_first || step.keys_written};
}

AttentionArgs Attention::expected(const StepInputs& step) const {
  return attention_args(
      step, view_of(static_cast<float*>(nullptr), {step.tokens, spec_.heads, spec_.head_dim}));
}

Attention::Heads Attention::project(ExecContext& ctx, const LayerInput& x,
                                    const StepInputs* attends) const {
  const std::int64_t tokens = x.rows();
  const std::int64_t q_width = std::int64_t{spec_.heads} * spec_.head_dim;
  const std::int64_t kv_width = std::int64_t{spec_.kv_heads} * spec_.head_dim;
  const TensorView all = ctx.scratch->take_f32({tokens, q_width + 2 * kv_width});
  const TensorView q = slice_columns(all, 0, q_width);
  const TensorView k = slice_columns(all, q_width, kv_width);
  const TensorView v = slice_columns(all, q_width + kv_width, kv_width);

  std::array<LinearOutput, 4> outputs;
  std::size_t count = 0;
  if (!weights_.qkv.empty()) {
    outputs[count++] = {&weights_.qkv, all};
  } else {
    outputs[count++] = {&weights_.q, q};
    outputs[count++] = {&weights_.k, k};
    // If values are the keys before their norm and rotation, compute the product twice. That is
    // cheaper than a copy, which would need an op in every backend.
    outputs[count++] = {spec_.value_is_key ? &weights_.k : &weights_.v, v};
  }
  Heads heads;
  if (spec_.gate != AttentionGate::kNone) {
    heads.gate = ctx.scratch->take_f32({tokens, weights_.gate.out()});
    outputs[count++] = {&weights_.gate, heads.gate};
  }
  heads.all = all;
  heads.q = as_heads(q, spec_.heads, spec_.head_dim);
  heads.k = as_heads(k, spec_.kv_heads, spec_.head_dim);
  heads.v = as_heads(v, spec_.kv_heads, spec_.head_dim);
  const AttentionArgs behind =
      attends != nullptr ? attention_args(*attends, heads.q) : AttentionArgs{};
  apply_query_linears(ctx, x, std::span(outputs.data(), count),
                      attends != nullptr ? &behind : nullptr);
  return heads;
}

void Attention::normalise_queries(ExecContext& ctx, const TensorView& q, bool after_rope) const {
  if (spec_.q_norm && spec_.q_norm->after_rope == after_rope) {
    normalise_one(ctx, weights_.q_norm, spec_.q_norm->across_heads, q);
  }
}

void Attention::normalise_keys(ExecContext& ctx, const TensorView& k, bool after_rope) const {
  if (spec_.k_norm && spec_.k_norm->after_rope == after_rope) {
    normalise_one(ctx, weights_.k_norm, spec_.k_norm->across_heads, k);
  }
}

void Attention::normalise(ExecContext& ctx, const Heads& heads, bool after_rope) const {
  normalise_queries(ctx, heads.q, after_rope);
  normalise_keys(ctx, heads.k, after_rope);
  // clip applies to the output of the norms before the rotation, not to their input.
  if (!after_rope && spec_.clip > 0.0f) {
    ctx.ops->clamp(ctx, {.x = heads.all, .limit = spec_.clip});
  }
}

Attention::Heads Attention::project_and_normalise(ExecContext& ctx, const LayerInput& x,
                                                  const StepInputs* attends) const {
  const Heads heads = project(ctx, x, attends);
  normalise(ctx, heads, false);
  if (spec_.v_norm) normalise_one(ctx, weights_.v_norm, false, heads.v);
  return heads;
}

// Projects queries (and the gate) only, for a step whose keys and values are already written.
Attention::Heads Attention::project_queries(ExecContext& ctx, const LayerInput& x,
                                            const StepInputs& step) const {
  BL_CHECK(keys_are_apart());
  Heads heads;
  heads.q = ctx.scratch->take_f32({x.rows(), spec_.heads, spec_.head_dim});
  std::array<LinearOutput, 2> outputs{LinearOutput{&weights_.q, as_columns(heads.q)}};
  std::size_t count = 1;
  if (spec_.gate != AttentionGate::kNone) {
    heads.gate = ctx.scratch->take_f32({x.rows(), weights_.gate.out()});
    outputs[count++] = {&weights_.gate, heads.gate};
  }
  const AttentionArgs behind = attention_args(step, heads.q);
  apply_query_linears(ctx, x, std::span(outputs.data(), count), &behind);
  normalise_queries(ctx, heads.q, false);
  return heads;
}

// Whether nothing comes between the rotation and the cache, and the rotation is the same for q and
// k.
bool Attention::rotates_and_writes() const {
  const bool norm_between =
      (spec_.q_norm && spec_.q_norm->after_rope) || (spec_.k_norm && spec_.k_norm->after_rope);
  return rotation_.rotated > 0 && !norm_between && spec_.query_rope == spec_.rope;
}

RopeArgs Attention::rope_args(const StepInputs& step, const TensorView& x, int table) const {
  const StepInputs::RopeRows& rows = step.ropes[static_cast<std::size_t>(table)];
  return {.x = x,
          .positions = step.positions,
          .inv_freq = rows.inv_freq,
          .scale = rows.scale,
          .variant = rows.variant,
          .rotated = rotation_.rotated,
          .style = rotation_.style};
}

RopeAndWriteArgs Attention::rope_and_write_args(const StepInputs& step, const Heads& heads) const {
  return {.q = rope_args(step, heads.q, spec_.rope),
          .k = rope_args(step, heads.k, spec_.rope),
          .write = {.k = heads.k, .v = heads.v, .cache = *step.kv, .slots = step.slots}};
}

// Rotates queries and keys, and writes keys and values to their slots.
void Attention::rotate_and_write(ExecContext& ctx, const StepInputs& step,
                                 const Heads& heads) const {
  if (rotates_and_writes() && ctx.ops->rope_and_write != nullptr) {
    ctx.ops->rope_and_write(ctx, rope_and_write_args(step, heads));
    return;
  }
  if (rotation_.rotated > 0) {
    ctx.ops->rope(ctx, rope_args(step, heads.q, spec_.query_rope));
    ctx.ops->rope(ctx, rope_args(step, heads.k, spec_.rope));
  }
  normalise(ctx, heads, true);
  ctx.ops->kv_write(ctx, {.k = heads.k, .v = heads.v, .cache = *step.kv, .slots = step.slots});
}

// Rotates, writes keys and values unless they are already written, and attends.
void Attention::attend(ExecContext& ctx, const StepInputs& step, const Heads& heads,
                       const Result& result) const {
  AttentionArgs attention = attention_args(step, heads.q);
  attention.out = result.out;
  if (!result.half.rows.empty()) attention.staged_out = &result.half;
  if (step.keys_written) {
    if (rotation_.rotated > 0) ctx.ops->rope(ctx, rope_args(step, heads.q, spec_.query_rope));
    normalise_queries(ctx, heads.q, true);
    ctx.ops->attention(ctx, attention);
    return;
  }
  if (!step.keys_first && rotates_and_writes() && ctx.ops->rope_write_attend != nullptr) {
    ctx.ops->rope_write_attend(ctx, rope_and_write_args(step, heads), attention);
    return;
  }
  rotate_and_write(ctx, step, heads);
  ctx.ops->attention(ctx, attention);
}

void Attention::write_with_queries(ExecContext& ctx, const StepInputs& step,
                                   const LayerInput& x) const {
  ArenaScope scope(*ctx.scratch);
  rotate_and_write(ctx, step, project_and_normalise(ctx, x, nullptr));
}

void Attention::write_keys(ExecContext& ctx, const StepInputs& step, const LayerInput& x) const {
  if (!keys_are_apart()) return write_with_queries(ctx, step, x);
  ArenaScope scope(*ctx.scratch);
  const std::int64_t width = std::int64_t{spec_.kv_heads} * spec_.head_dim;
  const TensorView all = ctx.scratch->take_f32({x.rows(), 2 * width});
  const std::array<LinearOutput, 2> outputs{
      LinearOutput{&weights_.k, slice_columns(all, 0, width)},
      LinearOutput{&weights_.v, slice_columns(all, width, width)}};
  apply_linears(ctx, x, outputs);
  const TensorView k = as_heads(outputs[0].out, spec_.kv_heads, spec_.head_dim);
  const TensorView v = as_heads(outputs[1].out, spec_.kv_heads, spec_.head_dim);
  normalise_keys(ctx, k, false);
  if (spec_.v_norm) normalise_one(ctx, weights_.v_norm, false, v);
  if (rotation_.rotated > 0) ctx.ops->rope(ctx, rope_args(step, k, spec_.rope));
  normalise_keys(ctx, k, true);
  ctx.ops->kv_write(ctx, {.k = k, .v = v, .cache = *step.kv, .slots = step.slots});
}

void Attention::forward(ExecContext& ctx, const StepInputs& step, const LayerInput& x,
                        const LayerSink& sink, const KeptRows* kept) const {
  ArenaScope scope(*ctx.scratch);
  const Heads heads =
      step.keys_written ? project_queries(ctx, x, step) : project_and_normalise(ctx, x, &step);
  Result result;
  if (spec_.gate == AttentionGate::kNone && kept == nullptr) {
    result.half = take_staged_input(ctx, weights_.o, x.rows());
  }
  if (result.half.rows.empty()) {
    result.out = ctx.scratch->take_f32({x.rows(), spec_.heads, spec_.head_dim});
  }
  attend(ctx, step, heads, result);
  ExecContext last = ctx;
  last.prefetch.weights.partly_issued = true;
  if (!result.half.rows.empty()) {
    apply_last_linear(last, {{}, result.half}, weights_.o, sink);
    return;
  }
  const TensorView columns = as_columns(result.out);
  if (spec_.gate != AttentionGate::kNone) {
    ctx.ops->gate(
        ctx,
        {.x = columns, .gate = heads.gate, .softplus = spec_.gate == AttentionGate::kSoftplusHead});
  }
  if (kept == nullptr) {
    apply_last_linear(last, columns, weights_.o, sink);
    return;
  }
  const std::int64_t count = kept->x.rows();
  const TensorView some = ctx.scratch->take_f32({count, columns.columns()});
  ctx.ops->copy_rows(ctx, {.x = columns, .rows = kept->rows, .count = count, .out = some});
  last.adapters = kept->adapters;
  apply_last_linear(last, some, weights_.o, sink);
}

std::size_t Attention::work_bytes(const AttentionSpec& spec, std::int64_t tokens) {
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;
  const std::int64_t kv_width = std::int64_t{spec.kv_heads} * spec.head_dim;
  std::size_t bytes = arena_bytes(DType::kF32, tokens * (q_width + 2 * kv_width)) +
                      arena_bytes(DType::kF32, tokens * q_width);
  if (spec.gate != AttentionGate::kNone) bytes += arena_bytes(DType::kF32, tokens * q_width);
  return bytes;
}

std::vector<float> alibi_slopes(int heads, float alibi_max) {
  BL_CHECK(heads > 0);
  const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<float> slopes;
  slopes.reserve(static_cast<std::size_t>(heads));
  for (int i = 1; i <= power; ++i)
    slopes.push_back(std::exp2(-alibi_max * float(i) / float(power)));
  for (int i = 1; static_cast<int>(slopes.size()) < heads; i += 2) {
    slopes.push_back(std::exp2(-alibi_max * float(i) / float(2 * power)));
  }
  return slopes;
}

}  // namespace bl
