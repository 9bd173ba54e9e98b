#include "nn/norm.h"

namespace bl {
namespace {

// A view of [tokens, width] as [tokens, 1, width].
TensorView with_segments(const TensorView& view) {
  if (view.shape.rank() != 2) return view;
  TensorView result = view;
  result.shape = Shape{view.shape[0], 1, view.shape[1]};
  return result;
}

}  // namespace

void Norm::forward(ExecContext& ctx, const TensorView& x, const TensorView& out) const {
  ctx.ops->norm(ctx, {.x = with_segments(x),
                      .out = with_segments(out),
                      .weight = weight_.view(),
                      .bias = bias_.view(),
                      .kind = spec_.kind,
                      .eps = spec_.eps,
                      .unit_offset = spec_.unit_offset});
}

}  // namespace bl
