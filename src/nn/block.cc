#include "nn/block.h"

#include <algorithm>

namespace bl {

TensorView Block::normalised(ExecContext& ctx, const Norm& norm, const TensorView& x) const {
  if (!norm.present()) return x;
  const TensorView h = ctx.scratch->take_f32(x.shape);
  norm.forward(ctx, x, h);
  return h;
}

// Runs a layer into a sink, through a norm of its output where there is one.
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

// What a layer reads of x: its norm's output, or x with the norm left to the layer's products.
LayerInput Block::input_of(ExecContext& ctx, const Norm& norm, const TensorView& x) const {
  if (norm.present() && may_leave_norm_to_products(ctx)) return {x, &norm};
  return normalised(ctx, norm, x);
}

void Block::run_feed_forward(ExecContext& ctx, const TensorView& x, const LayerInput& input) const {
  if (weights_.moe.present()) {
    run(ctx, stream(x), weights_.feed_forward_post_norm, [&](const LayerSink& sink) {
      weights_.moe.forward(ctx, {input.x, x}, sink);
    });
  } else if (weights_.feed_forward.present()) {
    run(ctx, stream(x), weights_.feed_forward_post_norm,
        [&](const LayerSink& sink) { weights_.feed_forward.forward(ctx, input, sink); });
  }
}

// Both read the x from before, so their sum is made beside it.
void Block::run_side_by_side(ExecContext& ctx, const TensorView& x) const {
  ArenaScope scope(*ctx.scratch);
  const TensorView sum = ctx.scratch->take_f32(x.shape);
  {
    ArenaScope dense(*ctx.scratch);
    const LayerInput h = input_of(ctx, weights_.feed_forward_norm, x);
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

void Block::forward(ExecContext& ctx, const StepInputs& step, const TensorView& x) const {
  ArenaScope scope(*ctx.scratch);
  TensorView parallel_input;
  if (weights_.attention.present()) {
    ArenaScope attention_scope(*ctx.scratch);
    const LayerInput h = spec_.parallel ? normalised(ctx, weights_.attention_norm, x)
                                        : input_of(ctx, weights_.attention_norm, x);
    if (spec_.parallel) {
      parallel_input = weights_.feed_forward_norm.present()
                           ? normalised(ctx, weights_.feed_forward_norm, x)
                           : h.x;
    }
    run(ctx, stream(x), weights_.attention_post_norm,
        [&](const LayerSink& sink) { weights_.attention.forward(ctx, step, h, sink); });
    if (spec_.parallel) run_feed_forward(ctx, x, parallel_input);
  }
  if (weights_.moe.present() && weights_.feed_forward.present()) {
    run_side_by_side(ctx, x);
  } else if (!spec_.parallel) {
    // A router and its experts read the same input, which is normalised once.
    run_feed_forward(ctx, x,
                     weights_.moe.present() ? normalised(ctx, weights_.feed_forward_norm, x)
                                            : input_of(ctx, weights_.feed_forward_norm, x));
  }
  if (spec_.output_scale) ctx.ops->scale(ctx, {.x = x, .multiplier = weights_.output_scale});
}

std::size_t Block::work_bytes(const BlockSpec& spec, std::int64_t hidden, std::int64_t tokens) {
  // A normalised input, or two (parallel blocks); an output before its norm; one before it is
  // multiplied and added; the sum of two (side by side).
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

}  // namespace bl
