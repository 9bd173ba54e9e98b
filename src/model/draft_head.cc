#include "model/draft_head.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "model/batch_inputs.h"

namespace bl {
namespace {

// Returns one span per token. A backend's attention is causal, so a token that may see its whole
// stretch is described as standing at the end of it. Steps of such spans can be recorded, however
// long a stretch is.
std::vector<SequenceSpan> spans_of(const StepBatch& batch, bool causal) {
  std::vector<SequenceSpan> spans;
  for (const BatchSequence& s : batch.sequences) {
    for (std::int32_t i = 0; i < s.tokens; ++i) {
      const std::int32_t past = s.past + (causal ? i : s.tokens - 1);
      spans.push_back({s.first_token + i, 1, past, s.pages.data()});
    }
  }
  return spans;
}

std::vector<RopeBank::Sequence> rotations_of(const StepBatch& batch) {
  std::vector<RopeBank::Sequence> rotations;
  for (const BatchSequence& s : batch.sequences) rotations.push_back({s.tokens, s.past, s.reach});
  return rotations;
}

// Adapters apply to the model only, not to its draft head.
ExecContext without_adapters(const ExecContext& ctx) {
  ExecContext own = ctx;
  own.adapters = nullptr;
  return own;
}

}  // namespace

bool DraftHead::is_causal(std::size_t layer) const {
  return parts_.spec.layers.blocks[layer].attention->causal;
}

const std::int32_t* DraftHead::upload(ExecContext& ctx,
                                      const std::vector<std::int32_t>& values) const {
  return upload_ints(ctx, backend_, values);
}

std::uint64_t DraftHead::step_key(const StepBatch& batch) const {
  std::uint64_t key = 1;
  for (const bool causal : {false, true}) {
    bool any = false;
    for (std::size_t i = 0; i < parts_.blocks.size(); ++i) any = any || is_causal(i) == causal;
    if (!any) continue;
    const std::uint64_t of_kind = backend_.step_key(spans_of(batch, causal));
    if (of_kind == 0) return 0;
    key = key * 0x9e3779b97f4a7c15u ^ of_kind;
  }
  return key;
}

bool DraftHead::reads(std::size_t blocks) const {
  const auto& states = parts_.spec.states;
  return std::find(states.begin(), states.end(), static_cast<std::int32_t>(blocks)) != states.end();
}

DraftHead::States DraftHead::take_states(ExecContext& ctx, const std::int32_t* ids,
                                         std::int64_t tokens) const {
  std::vector<std::int32_t> order(static_cast<std::size_t>(tokens));
  std::iota(order.begin(), order.end(), 0);
  return {ids, ctx.scratch->take_f32({tokens, parts_.spec.width()}), upload(ctx, order)};
}

void DraftHead::keep(ExecContext& ctx, std::int32_t blocks, const TensorView& x,
                     const States& to) const {
  const std::int64_t hidden = parts_.spec.layers.hidden;
  for (std::size_t i = 0; i < parts_.spec.states.size(); ++i) {
    if (parts_.spec.states[i] != blocks) continue;
    ctx.ops->copy_rows(
        ctx, {.x = x,
              .rows = to.order,
              .count = x.rows(),
              .out = slice_columns(to.rows, static_cast<std::int64_t>(i) * hidden, hidden)});
  }
}

// Returns the features of a chain, F32 [tokens, hidden]: each token combined with the state before
// it.
TensorView DraftHead::chained(ExecContext& ctx, const std::int32_t* ids, const TensorView& before,
                              const Lent& lent) const {
  const std::int64_t hidden = parts_.spec.layers.hidden;
  const TensorView features = ctx.scratch->take_f32(before.shape);
  ArenaScope scope(*ctx.scratch);
  const TensorView both = ctx.scratch->take_f32({before.rows(), 2 * hidden});
  const TensorView embedded = slice_columns(both, 0, hidden);
  lent.embedding.rows(ctx, ids, parts_.spec.embed_multiplier, embedded);
  if (parts_.embed_norm.present()) parts_.embed_norm.forward(ctx, embedded, embedded);
  parts_.norm.forward(ctx, before, slice_columns(both, hidden, hidden));
  const LinearOutput output{&parts_.combine, features};
  apply_linears(ctx, both, {&output, 1});
  return features;
}

// The features of a step of the model. The state before a token is that of the row before it or,
// for the first token of a sequence, the state that was carried for it; one array holds both.
TensorView DraftHead::chained_features(ExecContext& ctx, const StepBatch& batch,
                                       const States& states, const Lent& lent) const {
  const std::int64_t hidden = parts_.spec.layers.hidden;
  const std::int64_t tokens = states.rows.rows();
  const auto sequences = static_cast<std::int64_t>(batch.sequences.size());
  const CarriedStates& carried = batch.carried;
  BL_CHECK(carried.before.size() == batch.sequences.size());
  const TensorView all = ctx.scratch->take_f32({sequences + tokens, hidden});
  ctx.ops->copy_rows(ctx, {.x = carried.memory,
                           .rows = upload(ctx, carried.before),
                           .count = sequences,
                           .out = slice_rows(all, 0, sequences)});
  const TensorView normed = slice_rows(all, sequences, tokens);
  lent.final_norm.forward(ctx, states.rows, normed);
  std::vector<std::int32_t> rows(static_cast<std::size_t>(tokens));
  std::iota(rows.begin(), rows.end(), static_cast<std::int32_t>(sequences) - 1);
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    rows[static_cast<std::size_t>(batch.sequences[i].first_token)] = static_cast<std::int32_t>(i);
  }
  const TensorView before = ctx.scratch->take_f32({tokens, hidden});
  ctx.ops->copy_rows(ctx, {.x = all, .rows = upload(ctx, rows), .count = tokens, .out = before});
  const auto kept = static_cast<std::int64_t>(carried.kept.size());
  if (kept > 0) {
    ctx.ops->copy_rows(ctx, {.x = normed,
                             .rows = upload(ctx, carried.kept),
                             .count = kept,
                             .out = slice_rows(carried.memory, carried.kept_at, kept)});
  }
  return chained(ctx, states.ids, before, lent);
}

void DraftHead::write(ExecContext& ctx, const StepInputs& step, const StepBatch& batch,
                      const States& states, const Lent& lent) const {
  ArenaScope scope(*ctx.scratch);
  ExecContext own = without_adapters(ctx);
  TensorView features;
  if (parts_.spec.chain) {
    features = chained_features(own, batch, states, lent);
  } else {
    features = own.scratch->take_f32({states.rows.rows(), parts_.spec.layers.hidden});
    for (std::size_t i = 0; i < parts_.state_norms.size(); ++i) {
      const std::int64_t hidden = parts_.spec.layers.hidden;
      const TensorView state =
          slice_columns(states.rows, static_cast<std::int64_t>(i) * hidden, hidden);
      parts_.state_norms[i].forward(own, state, state);
    }
    const LinearOutput output{&parts_.combine, features};
    apply_linears(own, states.rows, {&output, 1});
    if (parts_.norm.present()) parts_.norm.forward(own, features, features);
  }
  const std::vector<StepInputs::RopeRows> ropes = parts_.ropes.prepare(own, rotations_of(batch));
  StepInputs mine = step;
  mine.ropes = ropes;
  for (std::size_t i = 0; i < parts_.blocks.size(); ++i) {
    mine.kv = &lent.layers[i];
    parts_.blocks[i].write_keys(
        own, mine, features,
        parts_.spec.normalise_features ? Block::KeyInput::kStream : Block::KeyInput::kNormalised);
  }
}

void DraftHead::forward(ExecContext& ctx, const StepBatch& batch, const Lent& lent,
                        const TensorView& h) const {
  ArenaScope scope(*ctx.scratch);
  ExecContext own = without_adapters(ctx);
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  BatchInputs inputs(own, backend_, parts_.ropes, batch);
  StepInputs& step = inputs.step();
  step.keys_first = true;
  const std::int32_t* ids = upload(own, batch.ids);
  const std::int32_t* wanted = upload(own, batch.logit_rows);
  TensorView x;
  if (parts_.spec.chain) {
    const TensorView before = own.scratch->take_f32({tokens, parts_.spec.layers.hidden});
    own.ops->copy_rows(own, {.x = batch.carried.memory,
                             .rows = upload(own, batch.carried.before),
                             .count = tokens,
                             .out = before});
    x = chained(own, ids, before, lent);
  } else {
    x = own.scratch->take_f32({tokens, parts_.spec.layers.hidden});
    lent.embedding.rows(own, ids, parts_.spec.embed_multiplier, x);
  }
  run_blocks(own, step, batch, lent, x);
  own.ops->copy_rows(own, {.x = x, .rows = wanted, .count = h.rows(), .out = h});
  if (parts_.final_norm.present()) parts_.final_norm.forward(own, h, h);
  const auto kept = static_cast<std::int64_t>(batch.carried.kept.size());
  if (kept == 0) return;
  own.ops->copy_rows(own, {.x = h,
                           .rows = upload(own, batch.carried.kept),
                           .count = kept,
                           .out = slice_rows(batch.carried.memory, batch.carried.kept_at, kept)});
}

// Only one attention plan is valid at a time, so neighbouring layers with the same kind of
// attention share one.
void DraftHead::run_blocks(ExecContext& ctx, StepInputs& step, const StepBatch& batch,
                           const Lent& lent, const TensorView& x) const {
  ResidualStream stream(x);
  for (std::size_t begin = 0; begin < parts_.blocks.size();) {
    ArenaScope scope(*ctx.scratch);
    const bool causal = is_causal(begin);
    const std::vector<SequenceSpan> spans = spans_of(batch, causal);
    step.sequences = spans;
    step.attention = backend_.plan_attention(ctx, spans);
    std::size_t layer = begin;
    for (; layer < parts_.blocks.size() && is_causal(layer) == causal; ++layer) {
      step.kv = &lent.layers[layer];
      parts_.blocks[layer].forward(ctx, step, stream);
    }
    begin = layer;
  }
}

std::size_t DraftHead::work_bytes(const DraftSpec& spec, std::int64_t tokens) {
  const std::int64_t hidden = spec.layers.hidden;
  std::size_t bytes = arena_bytes(DType::kF32, tokens * spec.width()) +
                      arena_bytes(DType::kI32, tokens) + arena_bytes(DType::kF32, tokens * hidden);
  if (spec.chain) {
    // Carried and own states; states before each token; the input of `combine`; three lists of
    // rows.
    bytes += arena_bytes(DType::kF32, 2 * tokens * hidden) +
             arena_bytes(DType::kF32, tokens * hidden) +
             arena_bytes(DType::kF32, 2 * tokens * hidden) + 3 * arena_bytes(DType::kI32, tokens);
  }
  return bytes;
}

}  // namespace bl
