// Chooses the decode kernel for a cache type and head size and launches it; holds the kernels for
// binary16 caches.

#include "backend/cuda/attention/attention_decode.h"

#include <algorithm>

#include "backend/cuda/attention/attention_decode_run.cuh"
#include "backend/cuda/attention/attention_hopper.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

void launch_halves(const DecodeRun& run, int query_tiles) {
  constexpr CacheTypes kTypes = CacheType::kF16;
  constexpr FragmentSource kFragmentSource = FragmentSource::kHalves;
  const int dim = std::max(run.params.k_row.dim, run.params.v_row.dim);
  BL_CHECK(dim <= 256);
  if (query_tiles == 1) {
    if (dim <= 64) return launch_decode_few<kTypes, 64, kFragmentSource>(run);
    if (dim <= 128) return launch_decode_few<kTypes, 128, kFragmentSource>(run);
    return launch_decode<DecodeConfig<kTypes, 256, 1, kFragmentSource>>(run);
  }
  if (dim <= 64) return launch_decode<DecodeConfig<kTypes, 64, 2, kFragmentSource>>(run);
  if (dim <= 128) return launch_decode<DecodeConfig<kTypes, 128, 2, kFragmentSource>>(run);
  launch_decode<DecodeConfig<kTypes, 256, 2, kFragmentSource>>(run);
}

void launch_decode_of(const DecodeRun& run, CacheTypes types, const DecodeForm& form) {
  switch (form.source) {
    case FragmentSource::kHalves:
      return launch_halves(run, form.query_tiles);
    case FragmentSource::kCodes:
      return launch_decode_codes(run, types);
    case FragmentSource::kTile:
      return has_own_kernels(types) ? launch_decode_tile(run, types)
                                    : launch_decode_any(run, form.query_tiles);
  }
}

DecodeForm form_of(const AttentionParams& params, const SpanPlan& host, CacheTypes types) {
  return decode_form(types, params.k_row.dim, params.v_row.dim, host.decode_tokens * params.group);
}

// `clusters`: whether the kernel can combine in clusters.
DecodeShape decode_shape(const ExecContext& ctx, const AttentionParams& params,
                         const SpanPlan& host, bool clusters) {
  return {.spans = host.decode_spans,
          .tokens = host.decode_tokens,
          .kv_heads = params.kv_heads,
          .group = params.group,
          .max_keys = host.page_stride * kPageSlots,
          .window = params.window,
          .multiprocessors = cuda_device(ctx).facts().multiprocessors,
          .clusters = clusters && cuda_device(ctx).facts().compute_capability >= 90};
}

}  // namespace

DecodeSplit decode_split(const ExecContext& ctx, const AttentionParams& params,
                         const DeviceSpanPlan& plan, CacheTypes types) {
  const bool clusters = form_of(params, plan.host, types).clusters;
  return split_decode(decode_shape(ctx, params, plan.host, clusters));
}

bool decode_can_fuse_rope(const AttentionParams& params, const DeviceSpanPlan& plan,
                          const RopeAndWriteArgs& rope) {
  return plan.host.prefill_spans == 0 && plan.host.decode_tokens == 1 &&
         params.group <= kQueryTile && rope.q.rotated / 2 <= kMaxRopePairs;
}

bool decode_can_stage(const AttentionParams& params, const DeviceSpanPlan& plan, CacheTypes types) {
  return types == CacheType::kF16 && plan.host.prefill_spans == 0 &&
         plan.host.decode_tokens * params.group <= kQueryTile;
}

void attention_decode(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      CacheTypes types, const DecodeExtras& extras) {
  const RopeAndWriteArgs* rope = extras.rope;
  FreshTokens fresh;
  if (rope != nullptr) {
    fresh = {true, rope_parameters(rope->q), rope_parameters(rope->k),
             kv_write_parameters(rope->write)};
  }
  const SpanPlan& host = plan.host;
  if (rope == nullptr && can_run_hopper(ctx, params, types)) {
    const HopperSplit hopper = split_hopper(decode_shape(ctx, params, host, true));
    if (hopper.kv_splits > 0) return attention_hopper_split(ctx, params, hopper, host.decode_spans);
  }
  const DecodeForm form = form_of(params, host, types);
  const DecodeSplit split = decode_split(ctx, params, plan, types);
  DecodeLaunch launch{.clusters = split.clusters,
                      .row_tiles = split.row_tiles,
                      .span_rows = split.span_rows,
                      .kv_splits = split.kv_splits,
                      .split_keys = split.split_keys};
  if (split.kv_splits > 1 && !split.clusters) {
    const std::int64_t rows = std::int64_t{split.spans_per_launch} * split.heads_per_launch *
                              split.kv_splits * split.span_rows;
    launch.values = ctx.scratch->take_f32({rows, params.v_row.dim}).as<float>();
    launch.row_stats = ctx.scratch->take_f32({rows, 2}).as<float2>();
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
      const dim3 grid(static_cast<unsigned>(split.kv_splits * split.row_tiles),
                      static_cast<unsigned>(heads), static_cast<unsigned>(spans));
      launch_decode_of({ctx, part, extras.staged, launch, fresh, split, grid}, types, form);
    }
  }
}

}  // namespace bl::cuda
