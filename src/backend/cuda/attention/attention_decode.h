#pragma once
#include "backend/cuda/attention/attention_params.h"
#include "backend/cuda/attention/attention_tables.h"

namespace bl::cuda {

// Attention of the plan's decode spans: keys are cut into pieces, a CTA reads one piece for all
// query heads of a kv head and all tokens of a span. The parts of a (span, kv head) are joined in
// order, by the last of its CTAs or, where they are a cluster, by all of them. For all cache types
// but F32; heads of a multiple of 8, at most 256; compute capability 8.0.
// With `rope`, spans have one token each, which is rotated and written in the same launch:
// only where decode_rotates says so. With `left`, results are left for the product behind, in place
// of params.out: only where decode_leaves says so.
struct DecodeBesides {
  const RopeAndWriteArgs* rope = nullptr;
  const StagedFragments* left = nullptr;
};
void attention_decode(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      CacheTypes types, const DecodeBesides& besides);
bool decode_rotates(const AttentionParams& params, const DeviceSpanPlan& plan,
                    const RopeAndWriteArgs& rope);
// How such a launch of all spans cuts their keys.
DecodeSplit decode_split(const ExecContext& ctx, const AttentionParams& params,
                         const DeviceSpanPlan& plan, CacheTypes types);
// A step of decode spans alone, from a cache of binary16, without rows so many that the kernel for
// them is taken.
bool decode_leaves(const AttentionParams& params, const DeviceSpanPlan& plan, CacheTypes types);

}  // namespace bl::cuda
