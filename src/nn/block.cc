#include "nn/block.h"

#include <algorithm>

namespace bl {

TensorView Block::normalised(ExecContext& ctx, const Norm& norm, const TensorView& x) const {
  if (!norm.present()) return x;
  const TensorView h = ctx.scratch->take_f32(x.shape);
  norm.forward(ctx, x, h);
  return h;
}

// Runs a layer into a sink, through the norm of its output if there is one.
template <class F>
void Block::run(ExecContext& ctx, const LayerSink& sink, const Norm& post_norm, F&& layer) const {
  if (!post_norm.present()) {
    layer(sink);
    return;
  }
  ArenaScope scope(*ctx.scratch);
  const TensorView y = sink.add ? ctx.scratch->take_f32(sink.to.shape) : sink.to;
  layer(LayerSink{.to = y, .add = false});
  post_norm.forward(ctx, y, y);
  if (sink.add) ctx.ops->add(ctx, {.x = sink.to, .y = y, .multiplier = sink.multiplier});
}

// The input of a layer: the output of its norm, or x with the norm left to the layer's products.
LayerInput Block::input_of(ExecContext& ctx, const Norm& norm, ResidualStream& x) const {
  if (norm.present() && fusion_of(ctx, {.tokens = x.rows()}).norm) return {x.read(), norm};
  return normalised(ctx, norm, x.whole(ctx));
}

void Block::run_feed_forward(ExecContext& ctx, ResidualStream& x, const LayerInput& input) const {
  if (weights_.moe.present()) {
    run(ctx, end_of(x), weights_.feed_forward_post_norm, [&](const LayerSink& sink) {
      weights_.moe.forward(ctx, {input.x, x.whole(ctx)}, sink);
    });
  } else if (weights_.feed_forward.present()) {
    run(ctx, end_of(x), weights_.feed_forward_post_norm,
        [&](const LayerSink& sink) { weights_.feed_forward.forward(ctx, input, sink); });
  }
}

// Both branches read x as it was before, so their sum is computed in a buffer of its own.
void Block::run_side_by_side(ExecContext& ctx, ResidualStream& stream) const {
  ArenaScope scope(*ctx.scratch);
  const TensorView& x = stream.whole(ctx);
  const TensorView sum = ctx.scratch->take_f32(x.shape);
  {
    ArenaScope dense(*ctx.scratch);
    const LayerInput h = input_of(ctx, weights_.feed_forward_norm, stream);
    run(ctx, {.to = sum, .add = false}, weights_.dense_post_norm,
        [&](const LayerSink& sink) { weights_.feed_forward.forward(ctx, h, sink); });
  }
  const TensorView h = normalised(ctx, weights_.moe_norm, x);
  run(ctx, {.to = sum}, weights_.moe_post_norm, [&](const LayerSink& sink) {
    weights_.moe.forward(ctx, {h, x}, sink);
  });
  if (weights_.feed_forward_post_norm.present()) {
    weights_.feed_forward_post_norm.forward(ctx, sum, sum);
  }
  ctx.ops->add(ctx, {.x = x, .y = sum, .multiplier = spec_.residual_multiplier});
}

// The norm of the feed-forward in a parallel block.
const Norm& Block::parallel_norm() const {
  return weights_.feed_forward_norm.present() ? weights_.feed_forward_norm
                                              : weights_.attention_norm;
}

// Runs what follows attention (in a parallel block, also feed-forward).
void Block::run_behind_attention(ExecContext& outer, const StepInputs& step,
                                 ResidualStream& x) const {
  ExecContext ctx = outer;
  ctx.prefetch.attention = step.next_attention;
  if (!weights_.moe.present()) ctx.prefetch.weights = step.next_weights;
  if (weights_.moe.present() && weights_.feed_forward.present()) {
    run_side_by_side(ctx, x);
  } else if (!spec_.parallel) {
    // A router and its experts read the same input, so it is normalized once.
    run_feed_forward(ctx, x,
                     weights_.moe.present()
                         ? normalised(ctx, weights_.feed_forward_norm, x.whole(ctx))
                         : input_of(ctx, weights_.feed_forward_norm, x));
  }
  if (spec_.output_scale) {
    ctx.ops->scale(ctx, {.x = x.whole(ctx), .multiplier = weights_.output_scale});
  }
}

// Runs attention and, in a parallel block, the feed-forward; with `kept`, only for these rows.
void Block::run_attention(ExecContext& outer, const StepInputs& step, ResidualStream& x,
                          const KeptRows* kept) const {
  ArenaScope scope(*outer.scratch);
  ExecContext ctx = outer;
  if (!weights_.moe.present() && !spec_.parallel) {
    ctx.prefetch.weights = weights_.feed_forward.first_weights();
  }
  const LayerInput h = spec_.parallel ? normalised(ctx, weights_.attention_norm, x.whole(ctx))
                                      : input_of(ctx, weights_.attention_norm, x);
  ResidualStream kept_stream(kept != nullptr ? kept->x : TensorView{});
  ResidualStream& to = kept != nullptr ? kept_stream : x;
  ExecContext own = outer;
  if (kept != nullptr) own.adapters = kept->adapters;
  TensorView parallel_input;
  if (spec_.parallel) {
    const bool same = kept == nullptr && !weights_.feed_forward_norm.present();
    parallel_input = same ? h.x : normalised(own, parallel_norm(), to.whole(own));
  }
  run(own, end_of(to), weights_.attention_post_norm,
      [&](const LayerSink& sink) { weights_.attention.forward(ctx, step, h, sink, kept); });
  if (spec_.parallel) run_feed_forward(own, to, parallel_input);
}

std::optional<AttentionArgs> Block::expected_attention(StepInputs step,
                                                       const PagedKvView& kv) const {
  if (!weights_.attention.present()) return std::nullopt;
  step.kv = &kv;
  return weights_.attention.expected(step);
}

void Block::write_keys(ExecContext& ctx, const StepInputs& step, const TensorView& x,
                       KeyInput what) const {
  if (what == KeyInput::kNormalised) return weights_.attention.write_keys(ctx, step, x);
  ResidualStream stream(x);
  write_stream_keys(ctx, step, stream);
}

void Block::write_stream_keys(ExecContext& ctx, const StepInputs& step, ResidualStream& x) const {
  ArenaScope scope(*ctx.scratch);
  weights_.attention.write_keys(ctx, step, input_of(ctx, weights_.attention_norm, x));
}

void Block::forward(ExecContext& ctx, const StepInputs& step, ResidualStream& x) const {
  ArenaScope scope(*ctx.scratch);
  if (weights_.attention.present()) run_attention(ctx, step, x, nullptr);
  run_behind_attention(ctx, step, x);
}

void Block::forward_kept(ExecContext& ctx, const StepInputs& step, ResidualStream& x,
                         const KeptRows& kept) const {
  ArenaScope scope(*ctx.scratch);
  const std::int64_t count = kept.x.rows();
  if (count > 0) {
    ctx.ops->copy_rows(ctx, {.x = x.whole(ctx), .rows = kept.rows, .count = count, .out = kept.x});
  }
  ExecContext own = ctx;
  own.adapters = kept.adapters;
  ResidualStream stream(kept.x);
  if (weights_.attention.present()) {
    if (count > 0 && kept.step == nullptr) {
      run_attention(ctx, step, x, &kept);
    } else {
      write_stream_keys(ctx, step, x);
      if (count > 0) run_attention(own, *kept.step, stream, nullptr);
    }
  }
  if (count == 0) return;
  run_behind_attention(own, step, stream);
}

std::size_t Block::work_bytes(const BlockSpec& spec, std::int64_t hidden, std::int64_t tokens) {
  // Counts buffers of [tokens, hidden]: one normalized input, or two in parallel blocks; an output
  // before its norm; one before it is multiplied and added; the sum and one more if side by side.
  std::size_t count = spec.parallel ? 2 : 1;
  if (spec.attention_post_norm || spec.feed_forward_post_norm) ++count;
  if (spec.residual_multiplier != 1.0f) ++count;
  if (spec.moe && spec.feed_forward) count += 2;
  const std::size_t rows = count * arena_bytes(DType::kF32, tokens * hidden);
  std::size_t layer = 0;
  if (spec.attention) layer = std::max(layer, Attention::work_bytes(*spec.attention, tokens));
  if (spec.feed_forward) {
    layer = std::max(layer, FeedForward::work_bytes(*spec.feed_forward, tokens));
  }
  if (spec.moe) layer = std::max(layer, Moe::work_bytes(*spec.moe, tokens));
  return rows + layer;
}

// Attention reads all rows. Its output is either copied for the kept rows, or computed for these
// only. Everything after it is for the kept rows.
std::size_t Block::kept_work_bytes(const BlockSpec& spec, std::int64_t hidden, std::int64_t tokens,
                                   std::int64_t kept) {
  std::size_t attention = 0;
  if (spec.attention) {
    attention = arena_bytes(DType::kF32, tokens * hidden) +
                Attention::work_bytes(*spec.attention, tokens) +
                Attention::work_bytes(*spec.attention, kept);
  }
  return attention + work_bytes(spec, hidden, kept);
}

}  // namespace bl
