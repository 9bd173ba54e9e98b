#include "model/draft_head.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "nn/device_copy.h"

namespace bl {
namespace {

// Each token of the blocks by itself: a backend's attention is causal, so one that sees the whole
// block is said to stand at its end. Steps of such spans can be recorded, however long a block is.
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

// The model's adapters are not the head's.
ExecContext without_adapters(const ExecContext& ctx) {
  ExecContext own = ctx;
  own.adapters = nullptr;
  return own;
}

}  // namespace

bool DraftHead::is_causal(std::size_t layer) const {
  return parts_.spec.layers.blocks[layer].attention->causal;
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

DraftHead::States DraftHead::take_states(ExecContext& ctx, std::int64_t tokens) const {
  std::vector<std::int32_t> order(static_cast<std::size_t>(tokens));
  std::iota(order.begin(), order.end(), 0);
  States states;
  states.rows = ctx.scratch->take_f32({tokens, parts_.spec.width()});
  states.order = scratch_copy(ctx, backend_, std::span<const std::int32_t>(order), Shape{tokens})
                     .as<const std::int32_t>();
  return states;
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

void DraftHead::write(ExecContext& ctx, const StepInputs& step,
                      std::span<const RopeBank::Sequence> sequences, const States& states,
                      std::span<const PagedKvView> layers) const {
  ArenaScope scope(*ctx.scratch);
  ExecContext own = without_adapters(ctx);
  const TensorView features =
      own.scratch->take_f32({states.rows.rows(), parts_.spec.layers.hidden});
  const LinearOutput output{&parts_.combine, features};
  apply_linears(own, states.rows, {&output, 1});
  if (parts_.norm.present()) parts_.norm.forward(own, features, features);
  const std::vector<StepInputs::RopeRows> ropes = parts_.ropes.prepare(own, sequences);
  StepInputs mine = step;
  mine.ropes = ropes;
  for (std::size_t i = 0; i < parts_.blocks.size(); ++i) {
    mine.kv = &layers[i];
    parts_.blocks[i].write_keys(own, mine, features);
  }
}

void DraftHead::forward(ExecContext& ctx, const StepBatch& batch, const Embedding& embedding,
                        std::span<const PagedKvView> layers, const TensorView& h) const {
  ArenaScope scope(*ctx.scratch);
  ExecContext own = without_adapters(ctx);
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  const auto upload_ints = [&](const std::vector<std::int32_t>& values) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    return scratch_copy(own, backend_, std::span<const std::int32_t>(values), shape)
        .as<const std::int32_t>();
  };
  StepInputs step;
  step.tokens = tokens;
  step.positions = upload_ints(batch.positions);
  step.slots =
      scratch_copy(own, backend_, std::span<const std::int64_t>(batch.slots), Shape{tokens})
          .as<const std::int64_t>();
  const std::int32_t* ids = upload_ints(batch.ids);
  const std::int32_t* wanted = upload_ints(batch.logit_rows);
  std::vector<RopeBank::Sequence> rotations;
  for (const BatchSequence& s : batch.sequences) rotations.push_back({s.tokens, s.past, s.reach});
  const std::vector<StepInputs::RopeRows> ropes = parts_.ropes.prepare(own, rotations);
  step.ropes = ropes;
  step.keys_first = true;
  const TensorView x = own.scratch->take_f32({tokens, parts_.spec.layers.hidden});
  embedding.rows(own, ids, parts_.spec.embed_multiplier, x);
  run_blocks(own, step, batch, layers, x);
  own.ops->copy_rows(own, {.x = x, .rows = wanted, .count = h.rows(), .out = h});
  if (parts_.final_norm.present()) parts_.final_norm.forward(own, h, h);
}

// Layers that follow each other and let a block see the same share a plan: there is one at a time.
void DraftHead::run_blocks(ExecContext& ctx, StepInputs& step, const StepBatch& batch,
                           std::span<const PagedKvView> layers, const TensorView& x) const {
  for (std::size_t begin = 0; begin < parts_.blocks.size();) {
    ArenaScope scope(*ctx.scratch);
    const bool causal = is_causal(begin);
    const std::vector<SequenceSpan> spans = spans_of(batch, causal);
    step.sequences = spans;
    step.attention = backend_.plan_attention(ctx, spans);
    std::size_t layer = begin;
    for (; layer < parts_.blocks.size() && is_causal(layer) == causal; ++layer) {
      step.kv = &layers[layer];
      parts_.blocks[layer].forward(ctx, step, x);
    }
    begin = layer;
  }
}

std::size_t DraftHead::work_bytes(const DraftSpec& spec, std::int64_t tokens) {
  return arena_bytes(DType::kF32, tokens * spec.width()) + arena_bytes(DType::kI32, tokens) +
         arena_bytes(DType::kF32, tokens * spec.layers.hidden);
}

}  // namespace bl
