#include "nn/embedding.h"

#include "nn/lora.h"

namespace bl {

std::size_t Embedding::bytes() const {
  std::size_t total = 0;
  for (const TensorView& view : {table_.view, positions_.view}) {
    if (!view.empty()) {
      total += static_cast<std::size_t>(view.shape.elements()) * size_of(view.dtype);
    }
  }
  return total;
}

void Embedding::rows(ExecContext& ctx, const std::int32_t* ids, float multiplier,
                     const TensorView& out) const {
  ctx.ops->embed(ctx, {.ids = ids,
                       .tokens = out.rows(),
                       .table = table_.view,
                       .out = out,
                       .multiplier = multiplier});
}

void Embedding::forward(ExecContext& ctx, const std::int32_t* ids, const std::int32_t* positions,
                        const TensorView& out) const {
  rows(ctx, ids, multiplier_, out);
  add_lora_embedding(ctx, ids, out, multiplier_);
  if (!positions_.view.empty()) {
    ctx.ops->embed(ctx, {.ids = positions,
                         .tokens = out.rows(),
                         .table = positions_.view,
                         .out = out,
                         .multiplier = 1.0f,
                         .accumulate = true});
  }
  if (norm_.present()) norm_.forward(ctx, out, out);
}

}  // namespace bl
