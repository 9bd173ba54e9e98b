#pragma once
#include <algorithm>

#include "ops/op_table.h"
#include "tensor/arena.h"
#include "tensor/tensor_view.h"

namespace bl {

// Memory for the split-K partial sums that GEMMs leave beside the stream in a step of few tokens;
// none in other steps, and where the backend fuses nothing.
struct PartialSumRoom {
  // With more tokens a step has so much to do that leaving partial sums gains nothing.
  static constexpr std::int64_t kMostTokens = 24;

  TensorView partials;  // F32 [partials, tokens, hidden]
  TensorView other;     // [tokens, hidden]: of several tokens

  static PartialSumRoom take(ExecContext& ctx, std::int64_t tokens, std::int64_t hidden) {
    PartialSumRoom room;
    if (ctx.ops->gemm_fusion == nullptr || tokens > kMostTokens) return room;
    room.partials = ctx.scratch->take_f32({partials_of(tokens), tokens, hidden});
    if (tokens > 1) room.other = ctx.scratch->take_f32({tokens, hidden});
    return room;
  }
  static std::size_t bytes(std::int64_t tokens, std::int64_t hidden) {
    tokens = std::min(tokens, kMostTokens);
    return arena_bytes(DType::kF32, partials_of(tokens) * tokens * hidden) +
           (tokens > 1 ? arena_bytes(DType::kF32, tokens * hidden) : 0);
  }

 private:
  // The GEMM of one token leaves one partial sum while it reads another.
  static std::int64_t partials_of(std::int64_t tokens) { return tokens == 1 ? 2 : kMaxPartials; }
};

// The residual stream of a step: F32 [tokens, hidden]. A GEMM that adds to it may leave partial
// sums beside it (GemmFusion::partials), which the GEMMs behind it read too. With one token they
// stay there until the next GEMM that adds to the stream adds them up with its own; with several
// tokens whoever reads them leaves the whole stream elsewhere, and it goes on from there.
class ResidualStream {
 public:
  // GEMMs may leave partial sums where `room` has memory for them.
  explicit ResidualStream(const TensorView& x, const PartialSumRoom& room = {})
      : x_(x), room_(room) {}

  // From here on GEMMs leave no partial sums.
  void forbid_partials() { may_leave_ = false; }

  std::int64_t rows() const { return x_.rows(); }
  // The stream as one tensor: partial sums are added to it.
  const TensorView& whole(ExecContext& ctx) {
    for (std::int64_t i = 0; i < partials_.rows(); ++i) {
      ctx.ops->add(ctx, {.x = x_, .y = partial_at(partials_, i)});
    }
    partials_ = {};
    return x_;
  }

  // What a GEMM reads: x + Σ partials, F32 [partials, tokens, hidden]. Where `sum` is not empty the
  // GEMM leaves the sum there, and the stream goes on from it.
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

  // What GEMMs add to: x and the partial sums, which are added up with their own.
  const TensorView& x() const { return x_; }
  const TensorView& partials() const { return partials_; }
  // Memory for so many partial sums of the next GEMM, apart from those of the last one; or empty.
  TensorView free_partials(std::int64_t count) const {
    if (!may_leave_ || room_.partials.empty() || count == 0) return {};
    const std::int64_t first =
        !partials_.empty() && partials_.data == room_.partials.data ? partials_.rows() : 0;
    return first + count <= room_.partials.rows() ? slice_rows(room_.partials, first, count)
                                                  : TensorView{};
  }
  // A GEMM has added to everything, and has left these partial sums or none.
  void replace_partials(const TensorView& partials) { partials_ = partials; }

 private:
  TensorView x_;
  TensorView partials_;
  PartialSumRoom room_;
  bool may_leave_ = true;
};

}  // namespace bl
