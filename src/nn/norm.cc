#include "nn/norm.h"

namespace bl {
namespace {

// Views [tokens, width] as [tokens, 1, width].
TensorView with_segments(const TensorView& view) {
  if (view.shape.rank() != 2) return view;
  TensorView result = view;
  result.shape = Shape{view.shape[0], 1, view.shape[1]};
  return result;
}

}  // namespace

void Norm::forward(ExecContext& ctx, const TensorView& x, const TensorView& out) const {
  NormArgs norm = args();
  norm.x = with_segments(x);
  norm.out = with_segments(out);
  ctx.ops->norm(ctx, norm);
}

}  // namespace bl
