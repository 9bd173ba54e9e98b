#pragma once
#include <array>

#include "ops/op_table.h"
#include "tensor/arena.h"
#include "tensor/tensor_view.h"

namespace bl {

// The residual stream of a step: F32 [tokens, hidden]. A product that adds to it may leave a part
// of its sum beside it (OpTable::leaves_rest), which the products behind it read, too, and which is
// added to x where anybody else asks for it.
class ResidualStream {
 public:
  explicit ResidualStream(const TensorView& x) : x_(x) {}

  // Products may leave rests from here on: takes scratch for them where the backend leaves any.
  void allow_rests(ExecContext& ctx) {
    if (ctx.ops->leaves_rest == nullptr) return;
    for (TensorView& place : places_) place = ctx.scratch->take_f32(x_.shape);
  }
  // And no longer.
  void forbid_rests() { places_ = {}; }
  static std::size_t work_bytes(std::int64_t tokens, std::int64_t hidden) {
    return 2 * arena_bytes(DType::kF32, tokens * hidden);
  }

  std::int64_t rows() const { return x_.rows(); }
  // All of it.
  const TensorView& whole(ExecContext& ctx) {
    if (!rest_.empty()) ctx.ops->add(ctx, {.x = x_, .y = rest_});
    rest_ = {};
    return x_;
  }
  // x + rest are all of it; no rest: x alone.
  const TensorView& x() const { return x_; }
  const TensorView& rest() const { return rest_; }
  // Where the next product may leave a part of its sum, not where the last one did; or empty.
  const TensorView& free_place() const { return places_[rest_.data == places_[0].data ? 1 : 0]; }
  // A product has added to both, and left its own rest, or none.
  void replace_rest(const TensorView& rest) { rest_ = rest; }

 private:
  TensorView x_;
  TensorView rest_;
  std::array<TensorView, 2> places_;
};

}  // namespace bl
