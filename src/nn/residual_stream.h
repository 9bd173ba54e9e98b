#pragma once
#include <algorithm>

#include "ops/op_table.h"
#include "tensor/arena.h"
#include "tensor/tensor_view.h"

namespace bl {

// Memory of what products leave beside the stream in a step of few tokens; none in others, and
// where the backend leaves nothing.
struct PartialSumRoom {
  // With more a step has so much to do that rests do not count.
  static constexpr std::int64_t kMostTokens = 24;

  TensorView partials;  // F32 [rests, tokens, hidden]
  TensorView other;     // [tokens, hidden]: of several tokens

  static PartialSumRoom take(ExecContext& ctx, std::int64_t tokens, std::int64_t hidden) {
    PartialSumRoom room;
    if (ctx.ops->partials_left == nullptr || tokens > kMostTokens) return room;
    room.partials = ctx.scratch->take_f32({rests_of(tokens), tokens, hidden});
    if (tokens > 1) room.other = ctx.scratch->take_f32({tokens, hidden});
    return room;
  }
  static std::size_t bytes(std::int64_t tokens, std::int64_t hidden) {
    tokens = std::min(tokens, kMostTokens);
    return arena_bytes(DType::kF32, rests_of(tokens) * tokens * hidden) +
           (tokens > 1 ? arena_bytes(DType::kF32, tokens * hidden) : 0);
  }

 private:
  // One token's product leaves one rest while it reads another.
  static std::int64_t rests_of(std::int64_t tokens) { return tokens == 1 ? 2 : kMaxPartials; }
};

// The residual stream of a step: F32 [tokens, hidden]. A product that adds to it may leave parts of
// its sum beside it (OpTable::partials_left), which the products behind it read, too. One token's
// rest stays there until the next product that adds to the stream adds it up with its own; of
// several tokens who reads rests leaves the whole stream elsewhere, and it goes on from there.
class ResidualStream {
 public:
  // Products may leave rests where there is room.
  explicit ResidualStream(const TensorView& x, const PartialSumRoom& room = {})
      : x_(x), room_(room) {}

  // No longer.
  void forbid_partials() { may_leave_ = false; }

  std::int64_t rows() const { return x_.rows(); }
  // All of it.
  const TensorView& whole(ExecContext& ctx) {
    for (std::int64_t i = 0; i < partials_.rows(); ++i) {
      ctx.ops->add(ctx, {.x = x_, .y = partial_at(partials_, i)});
    }
    partials_ = {};
    return x_;
  }

  // As a product reads it: x + Σ rests, F32 [rests, tokens, hidden], which it leaves in `sum`, if
  // there is one: then the stream is that from here on.
  struct Reading {
    TensorView x;
    TensorView partials = {};
    TensorView sum = {};
  };
  Reading read() {
    Reading reading{.x = x_, .partials = partials_};
    if (partials_.empty() || room_.other.empty()) return reading;
    reading.sum = room_.other;
    std::swap(x_, room_.other);
    partials_ = {};
    return reading;
  }

  // What products add to: x, and rests, which are added up with their own.
  const TensorView& x() const { return x_; }
  const TensorView& partials() const { return partials_; }
  // Where the next product may leave so many parts of its sum, not where the last one did; or
  // empty.
  TensorView free_places(std::int64_t partials) const {
    if (!may_leave_ || room_.partials.empty() || partials == 0) return {};
    const std::int64_t first =
        !partials_.empty() && partials_.data == room_.partials.data ? partials_.rows() : 0;
    return first + partials <= room_.partials.rows() ? slice_rows(room_.partials, first, partials)
                                                     : TensorView{};
  }
  // A product has added to all, and left its own rests, or none.
  void replace_partials(const TensorView& partials) { partials_ = partials; }

 private:
  TensorView x_;
  TensorView partials_;
  PartialSumRoom room_;
  bool may_leave_ = true;
};

}  // namespace bl
