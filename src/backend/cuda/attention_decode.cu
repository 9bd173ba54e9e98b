#include "backend/cuda/attention_decode.h"

#include <algorithm>

#include "backend/cuda/attention_decode.cuh"
#include "backend/cuda/attention_launch.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

struct DecodeRun {
  ExecContext& ctx;
  const AttentionParams& params;
  const DecodeLaunch& launch;
  const FreshTokens& fresh;
  dim3 grid;
};

template <CacheType kType, int kDim>
void launch_decode(const DecodeRun& run) {
  using Room = DecodeRoom<kType, kDim>;
  const auto bytes = static_cast<std::size_t>(
      Room::kQueryBytes + Room::ring_bytes(run.params.k_row.bytes, run.params.v_row.bytes));
  allow_shared_bytes(decode_kernel<kType, kDim>, bytes);
  launch(shape_of(run.ctx, run.grid, dim3(kDecodeWarps * 32), bytes), decode_kernel<kType, kDim>,
         run.params, run.launch, run.fresh);
}

template <CacheType kType>
void launch_decode_of(const DecodeRun& run) {
  const int dim = std::max(run.params.k_row.dim, run.params.v_row.dim);
  if (dim <= 64) return launch_decode<kType, 64>(run);
  if (dim <= 128) return launch_decode<kType, 128>(run);
  BL_CHECK(dim <= 256);
  launch_decode<kType, 256>(run);
}

void launch_decode_any(const DecodeRun& run, CacheType type) {
  switch (type) {
    case CacheType::kF16:
      return launch_decode_of<CacheType::kF16>(run);
    case CacheType::kFp8:
      return launch_decode_of<CacheType::kFp8>(run);
    case CacheType::kQ8:
      return launch_decode_of<CacheType::kQ8>(run);
    case CacheType::kQ6:
      return launch_decode_of<CacheType::kQ6>(run);
    case CacheType::kQ4:
      return launch_decode_of<CacheType::kQ4>(run);
    case CacheType::kF32:
      break;
  }
  BL_CHECK(false);
}

}  // namespace

bool decode_rotates(const AttentionParams& params, const DeviceSpanPlan& plan,
                    const RopeAndWriteArgs& rope) {
  return plan.host.prefill_spans == 0 && plan.host.decode_tokens == 1 &&
         params.group <= kQueryTile && rope.q.rotated / 2 <= kMostTurns;
}

void attention_decode(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      CacheType type, const RopeAndWriteArgs* rope) {
  FreshTokens fresh;
  if (rope != nullptr) {
    fresh = {true, rope_parameters(rope->q), rope_parameters(rope->k),
             kv_write_parameters(rope->write)};
  }
  const SpanPlan& host = plan.host;
  const DecodeSplit split = split_decode({.spans = host.decode_spans,
                                          .tokens = host.decode_tokens,
                                          .kv_heads = params.kv_heads,
                                          .group = params.group,
                                          .max_keys = host.page_stride * kPageSlots,
                                          .window = params.window,
                                          .multiprocessors = cuda_ops_of(ctx).multiprocessors,
                                          .regardless_of_batch = ctx.deterministic});
  DecodeLaunch launch{.row_tiles = split.row_tiles,
                      .span_rows = split.span_rows,
                      .pieces = split.pieces,
                      .piece_keys = split.piece_keys};
  if (split.pieces > 1) {
    const std::int64_t rows = std::int64_t{split.spans_per_launch} * split.heads_per_launch *
                              split.pieces * split.span_rows;
    launch.values = ctx.scratch->take_f32({rows, params.v_row.dim}).as<float>();
    launch.tops = ctx.scratch->take_f32({rows, 2}).as<float2>();
  }
  for (int span = 0; span < host.decode_spans; span += split.spans_per_launch) {
    const int spans = std::min(split.spans_per_launch, host.decode_spans - span);
    AttentionParams part = params;
    part.spans += span;
    part.pages += static_cast<std::int64_t>(span) * params.page_stride;
    launch.counters = plan.counters() + static_cast<std::int64_t>(span) * kCountersPerSpan;
    for (int head = 0; head < params.kv_heads; head += split.heads_per_launch) {
      launch.first_head = head;
      const int heads = std::min(split.heads_per_launch, params.kv_heads - head);
      const dim3 grid(static_cast<unsigned>(split.pieces * split.row_tiles),
                      static_cast<unsigned>(heads), static_cast<unsigned>(spans));
      launch_decode_any({ctx, part, launch, fresh, grid}, type);
    }
  }
}

}  // namespace bl::cuda
