#pragma once
#include "backend/cuda/attention/attention_params.h"
#include "backend/cuda/attention/attention_tables.h"

namespace bl::cuda {

// What a decode launch can do besides attention. With `rope`, spans have one token each, and the
// kernel applies rope to it and writes its key and value to the cache; only where
// decode_can_fuse_rope() is true. With `staged`, the results are written as the staged input of the
// next GEMM instead of params.out; only where decode_can_stage() is true.
struct DecodeExtras {
  const RopeAndWriteArgs* rope = nullptr;
  const StagedFragments* staged = nullptr;
};

// Attention of the plan's decode spans (FlashDecoding): the keys are cut into KV splits, and a CTA
// reads one split for up to kQueryTile query rows of a kv head: all its query heads × the span's
// tokens. The partial results of a (span, kv head) are combined in a fixed order, by the last of
// its CTAs to finish or, where they are a cluster, by all of them. For all cache types but F32,
// head sizes that are multiples of 8 up to 256, and compute capability 8.0 and later.
void attention_decode(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      CacheTypes types, const DecodeExtras& extras);
bool decode_can_fuse_rope(const AttentionParams& params, const DeviceSpanPlan& plan,
                          const RopeAndWriteArgs& rope);
// Returns how attention_decode() cuts the keys of the plan's decode spans.
DecodeSplit decode_split(const ExecContext& ctx, const AttentionParams& params,
                         const DeviceSpanPlan& plan, CacheTypes types);
// Whether attention_decode() can stage results: all spans of the step are decode spans, the cache
// is binary16, and each span has at most kQueryTile query rows, so that attention_hopper_split() is
// not taken.
bool decode_can_stage(const AttentionParams& params, const DeviceSpanPlan& plan, CacheTypes types);

}  // namespace bl::cuda
