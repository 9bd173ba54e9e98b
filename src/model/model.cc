#include "model/model.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "model/batch_inputs.h"
#include "model/kept_step.h"
#include "nn/lora.h"

namespace bl {
namespace {

std::size_t embed_and_inputs_bytes(const ModelSpec& spec, std::int64_t tokens) {
  return arena_bytes(DType::kF32, tokens * spec.hidden) +
         PartialSumRoom::bytes(tokens, spec.hidden) + 2 * arena_bytes(DType::kI32, tokens) +
         arena_bytes(DType::kI64, tokens);
}

// Whether the batch wants a copy of the residual stream after `blocks` blocks.
bool wants_states(const StepBatch& batch, std::int32_t blocks) {
  return std::any_of(batch.states.begin(), batch.states.end(),
                     [&](const StateRows& states) { return states.blocks == blocks; });
}

}  // namespace

std::size_t model_work_bytes(const WorkShape& shape, const Backend& backend, std::int64_t tokens,
                             std::int64_t logit_rows) {
  const ModelSpec& spec = shape.spec;
  std::size_t block = 0;
  Backend::ScratchShape scratch;
  scratch.tokens = std::max(tokens, logit_rows);
  scratch.logit_rows = logit_rows;
  scratch.hidden = spec.hidden;
  scratch.max_in = shape.max_in;
  scratch.max_slots = shape.max_slots;
  scratch.max_out = shape.max_out;
  const auto add_block = [&](const BlockSpec& b) {
    block = std::max(block, Block::work_bytes(b, spec.hidden, tokens));
    if (b.attention) {
      scratch.heads = std::max<std::int64_t>(scratch.heads, b.attention->heads);
      scratch.head_dim = std::max<std::int64_t>(scratch.head_dim, b.attention->head_dim);
    }
    if (b.moe) {
      scratch.experts = std::max<std::int64_t>(scratch.experts, b.moe->experts);
      scratch.experts_per_token =
          std::max<std::int64_t>(scratch.experts_per_token, b.moe->per_token);
      scratch.expert_intermediate =
          std::max(scratch.expert_intermediate, b.moe->expert.intermediate);
    }
  };
  for (const std::int32_t layer : spec.order) {
    add_block(spec.blocks[static_cast<std::size_t>(layer)]);
  }
  std::size_t ropes = 0;
  for (const RopeSpec& rope : spec.ropes) ropes += RopeBank::work_bytes(rope, tokens);
  std::size_t draft = 0;
  if (shape.draft != nullptr) {
    for (const BlockSpec& b : shape.draft->layers.blocks) add_block(b);
    for (const RopeSpec& rope : shape.draft->layers.ropes) {
      ropes += RopeBank::work_bytes(rope, tokens);
    }
    draft = DraftHead::work_bytes(*shape.draft, tokens);
  }
  const std::int64_t rows = std::min(tokens, logit_rows);
  const std::size_t kept = arena_bytes(DType::kF32, logit_rows * spec.hidden) +
                           2 * arena_bytes(DType::kI32, logit_rows) +
                           KeptStep::work_bytes(spec.ropes, rows);
  if (!spec.order.empty()) {
    const BlockSpec& last = spec.blocks[static_cast<std::size_t>(spec.order.back())];
    block = std::max(block, Block::kept_work_bytes(last, spec.hidden, tokens, rows));
  }
  const std::size_t chosen = arena_bytes(DType::kI32, 2 * logit_rows);
  return chosen + arena_bytes(DType::kF32, logit_rows * spec.vocab) +
         embed_and_inputs_bytes(spec, tokens) + lora_work_bytes(std::max(tokens, logit_rows)) +
         ropes + kept + block + draft + backend.scratch_bytes(scratch);
}

std::size_t Model::work_bytes(std::int64_t tokens, std::int64_t logit_rows) const {
  const DraftSpec* draft = parts_.draft ? &parts_.draft->spec() : nullptr;
  return model_work_bytes({parts_.spec, parts_.max_in, parts_.max_slots, parts_.max_out, draft},
                          backend_, tokens, logit_rows);
}

std::vector<KvLayout> Model::kv_layouts(CacheTypes type) const {
  std::vector<KvLayout> layouts = parts_.spec.kv_layouts(type);
  if (parts_.draft) {
    const std::vector<KvLayout> side = parts_.draft->spec().layers.kv_layouts(type);
    layouts.insert(layouts.end(), side.begin(), side.end());
  }
  return layouts;
}

void Model::check_ids(const StepBatch& batch) const {
  const std::int64_t rows = embedding_rows();
  for (std::int32_t id : batch.ids) {
    if (id < 0 || id >= rows) {
      fail(ErrorCode::kInvalidArgument, "token id {} is outside the model's vocabulary of {}", id,
           rows);
    }
  }
}

void Model::check_tokens(const StepBatch& batch) const {
  if (batch.chosen == nullptr) check_ids(batch);
  const std::int64_t learned = parts_.embedding.learned_positions();
  for (std::int32_t position : batch.positions) {
    BL_CHECK(position >= 0);
    if (learned > 0 && position >= learned) {
      fail(ErrorCode::kLimit,
           "position {} is beyond the {} positions that this model has learned; a shorter prompt "
           "fits",
           position, learned);
    }
  }
}

void Model::head_of(ExecContext& ctx, const LayerInput& h, const HeadScale& scale,
                    const TensorView& logits) const {
  const LinearOutput output{&parts_.head, logits};
  apply_linears(ctx, h, {&output, 1}, scale.multiplier);
  if (scale.softcap > 0.0f) ctx.ops->scale(ctx, {.x = logits, .softcap = scale.softcap});
}

void Model::copy_states(ExecContext& ctx, const StepBatch& batch, std::int32_t blocks,
                        const TensorView& x) const {
  const auto count = static_cast<std::int64_t>(batch.logit_rows.size());
  for (const StateRows& states : batch.states) {
    if (states.blocks != blocks) continue;
    ArenaScope scope(*ctx.scratch);
    // After the last block, x may already consist of the wanted rows alone.
    std::vector<std::int32_t> rows = batch.logit_rows;
    if (x.rows() == count) std::iota(rows.begin(), rows.end(), 0);
    ctx.ops->copy_rows(
        ctx, {.x = x, .rows = upload_ints(ctx, backend_, rows), .count = count, .out = states.to});
  }
}

void Model::run_blocks(ExecContext& ctx, const StepBatch& batch,
                       std::span<const PagedKvView> layers, const PartialSumRoom& room,
                       KeptRows& kept) const {
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  BatchInputs inputs(ctx, backend_, parts_.ropes, batch);
  StepInputs& step = inputs.step();
  const std::int32_t* ids =
      batch.chosen != nullptr ? batch.chosen : upload_ints(ctx, backend_, batch.ids);
  const bool all = kept.x.rows() == tokens;
  const TensorView x = all ? kept.x : ctx.scratch->take_f32({tokens, parts_.spec.hidden});
  const DraftHead* draft = parts_.draft.get();
  DraftHead::States states;
  if (draft != nullptr) states = draft->take_states(ctx, ids, tokens);
  // Taken last, so that its memory can be given back when another plan replaces it.
  std::optional<ArenaScope> plan_scope(std::in_place, *ctx.scratch);
  step.attention = backend_.plan_attention(ctx, step.sequences);
  parts_.embedding.forward(ctx, ids, step.positions, x);
  copy_states(ctx, batch, 0, x);
  const std::vector<std::int32_t>& order = parts_.spec.order;
  std::optional<KeptStep> kept_step;
  ResidualStream stream(x, room);
  auto cache = layers.begin();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto layer = static_cast<std::size_t>(order[i]);
    const Block& block = parts_.blocks[layer];
    if (parts_.spec.blocks[layer].attention) step.kv = &*cache++;
    const std::optional<AttentionArgs> next = next_attention(i, step, {cache, layers.end()});
    step.next_attention = next ? &*next : nullptr;
    step.next_weights = weights_behind(i);
    const bool last = i + 1 == order.size();
    const bool is_read = draft != nullptr && draft->reads(i + 1);
    if (last) stream.forbid_partials();
    if (last && !all && !is_read) {
      if (block.queries_are_apart() && KeptStep::pays(batch)) {
        plan_scope.reset();
        step.attention = nullptr;
        kept.step = &kept_step.emplace(ctx, backend_, parts_.ropes, batch, step).inputs();
      }
      block.forward_kept(ctx, step, stream, kept);
      kept.step = nullptr;
    } else {
      block.forward(ctx, step, stream);
    }
    const auto blocks = static_cast<std::int32_t>(i + 1);
    if (last || is_read || wants_states(batch, blocks)) stream.whole(ctx);
    if (is_read) draft->keep(ctx, blocks, stream.x(), states);
    if (last && all) kept.x = stream.x();
    if (last && !all && is_read && kept.x.rows() > 0) {
      ctx.ops->copy_rows(
          ctx, {.x = stream.x(), .rows = kept.rows, .count = kept.x.rows(), .out = kept.x});
    }
    copy_states(ctx, batch, blocks, last ? kept.x : stream.x());
  }
  if (draft != nullptr) draft->write(ctx, step, batch, states, lent_to_draft(layers));
}

std::optional<AttentionArgs> Model::next_attention(std::size_t block, const StepInputs& step,
                                                   std::span<const PagedKvView> caches) const {
  const std::vector<std::int32_t>& order = parts_.spec.order;
  if (block + 1 == order.size() || caches.empty()) return std::nullopt;
  return parts_.blocks[static_cast<std::size_t>(order[block + 1])].expected_attention(
      step, caches.front());
}

NextWeights Model::weights_behind(std::size_t block) const {
  const std::vector<std::int32_t>& order = parts_.spec.order;
  if (block + 1 == order.size()) return next_weights_of({&parts_.head});
  return parts_.blocks[static_cast<std::size_t>(order[block + 1])].first_weights();
}

DraftHead::Lent Model::lent_to_draft(std::span<const PagedKvView> layers) const {
  return {parts_.embedding, parts_.final_norm,
          layers.subspan(static_cast<std::size_t>(parts_.spec.kv_layers()))};
}

TensorView Model::draft(ExecContext& ctx, const StepBatch& batch,
                        std::span<const PagedKvView> layers) const {
  BL_CHECK(parts_.draft != nullptr && static_cast<int>(layers.size()) == kv_layers());
  check_ids(batch);
  const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
  const TensorView logits = ctx.scratch->take_f32({rows, parts_.spec.vocab});
  ArenaScope scope(*ctx.scratch);
  const TensorView h = ctx.scratch->take_f32({rows, parts_.spec.hidden});
  const DraftHead& head = *parts_.draft;
  head.forward(ctx, batch, lent_to_draft(layers), h);
  head_of(ctx, h, {head.spec().head_multiplier, head.spec().head_softcap}, logits);
  return logits;
}

void Model::check_rows(const StepBatch& batch) const {
  BL_CHECK(batch.positions.size() == batch.ids.size() && batch.slots.size() == batch.ids.size());
  BL_CHECK(std::adjacent_find(batch.logit_rows.begin(), batch.logit_rows.end(),
                              std::greater_equal<>()) == batch.logit_rows.end());
}

void Model::finish(ExecContext& ctx, const StepBatch& batch, const TensorView& x,
                   const TensorView& logits) const {
  LayerInput h = x;
  if (parts_.final_norm.present()) {
    if (fusion_of(ctx, {.tokens = x.rows()}).norm && !wants_states(batch, StateRows::kNormed)) {
      h = {{.x = x}, parts_.final_norm};
    } else {
      parts_.final_norm.forward(ctx, x, x);
    }
  }
  head_of(ctx, h, {parts_.spec.head_multiplier, parts_.spec.head_softcap}, logits);
  copy_states(ctx, batch, StateRows::kNormed, x);
}

TensorView Model::forward(ExecContext& ctx, const StepBatch& batch,
                          std::span<const PagedKvView> layers) const {
  check_tokens(batch);
  check_rows(batch);
  const auto tokens = static_cast<std::int64_t>(batch.ids.size());
  BL_CHECK(static_cast<int>(layers.size()) == kv_layers());
  const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
  const TensorView logits = ctx.scratch->take_f32({rows, parts_.spec.vocab});
  ArenaScope scope(*ctx.scratch);
  const BatchAdapters adapters(batch);
  ExecContext own = ctx;
  own.adapters = adapters.of_tokens();
  KeptRows kept;
  kept.x = ctx.scratch->take_f32({rows, parts_.spec.hidden});
  kept.adapters = adapters.of_logits();
  if (rows > 0 && rows < tokens) kept.rows = upload_ints(ctx, backend_, batch.logit_rows);
  const PartialSumRoom room = PartialSumRoom::take(own, tokens, parts_.spec.hidden);
  {
    ArenaScope blocks(*ctx.scratch);
    run_blocks(own, batch, layers, room, kept);
  }
  if (rows == 0) return logits;
  own.adapters = kept.adapters;
  finish(own, batch, kept.x, logits);
  return logits;
}

}  // namespace bl
