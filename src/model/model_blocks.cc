// The parts of Model that run one block at a time over hidden states that the caller keeps.

#include <algorithm>

#include "base/check.h"
#include "model/batch_inputs.h"
#include "model/model.h"

namespace bl {

void Model::check_states(const StepBatch& batch, const TensorView& x) const {
  check_rows(batch);
  BL_CHECK(x.shape == (Shape{std::ssize(batch.ids), parts_.spec.hidden}));
}

const PagedKvView* Model::keys_of(std::size_t number, std::span<const PagedKvView> layers) const {
  const std::vector<BlockSpec>& specs = parts_.spec.blocks;
  const auto attends = [&](std::int32_t layer) {
    return specs[static_cast<std::size_t>(layer)].attention.has_value();
  };
  const std::vector<std::int32_t>& order = parts_.spec.order;
  const auto block = order.begin() + static_cast<std::ptrdiff_t>(number);
  if (!attends(*block)) return nullptr;
  const auto index = static_cast<std::size_t>(std::count_if(order.begin(), block, attends));
  BL_CHECK(index < layers.size());
  return &layers[index];
}

void Model::embed(ExecContext& ctx, const StepBatch& batch, const TensorView& x) const {
  BL_CHECK(embedding_rows() > 0);
  check_tokens(batch);
  check_states(batch, x);
  ArenaScope scope(*ctx.scratch);
  const BatchAdapters adapters(batch);
  ExecContext own = ctx;
  own.adapters = adapters.of_tokens();
  const std::int32_t* ids = upload_ints(own, backend_, batch.ids);
  parts_.embedding.forward(own, ids, upload_ints(own, backend_, batch.positions), x);
}

void Model::run_block(ExecContext& ctx, const StepBatch& batch, std::span<const PagedKvView> layers,
                      std::size_t number, const TensorView& x) const {
  check_states(batch, x);
  BL_CHECK(number < parts_.spec.order.size());
  const auto layer = static_cast<std::size_t>(parts_.spec.order[number]);
  const Block& block = parts_.blocks[layer];
  const BlockSpec& spec = parts_.spec.blocks[layer];
  BL_CHECK(block.present() || !(spec.attention || spec.feed_forward || spec.moe));
  ArenaScope scope(*ctx.scratch);
  const BatchAdapters adapters(batch);
  ExecContext own = ctx;
  own.adapters = adapters.of_tokens();
  BatchInputs inputs(own, backend_, parts_.ropes, batch);
  StepInputs& step = inputs.step();
  step.kv = keys_of(number, layers);
  step.attention = backend_.plan_attention(own, step.sequences);
  ResidualStream stream(x);
  block.forward(own, step, stream);
}

TensorView Model::logits(ExecContext& ctx, const StepBatch& batch, const TensorView& x) const {
  BL_CHECK(!parts_.head.empty());
  check_states(batch, x);
  const std::int64_t rows = std::ssize(batch.logit_rows);
  const TensorView logits = ctx.scratch->take_f32({rows, parts_.spec.vocab});
  if (rows == 0) return logits;
  ArenaScope scope(*ctx.scratch);
  const BatchAdapters adapters(batch);
  ExecContext own = ctx;
  own.adapters = adapters.of_logits();
  const TensorView wanted = own.scratch->take_f32({rows, parts_.spec.hidden});
  own.ops->copy_rows(
      own,
      {.x = x, .rows = upload_ints(own, backend_, batch.logit_rows), .count = rows, .out = wanted});
  finish(own, batch, wanted, logits);
  return logits;
}

}  // namespace bl
