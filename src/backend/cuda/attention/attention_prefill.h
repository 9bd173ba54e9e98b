#pragma once
#include "backend/cuda/attention/attention_params.h"
#include "backend/cuda/attention/attention_tables.h"

namespace bl::cuda {

// Attention of the plan's prefill spans: a CTA keeps a query tile (tokens × query heads of a kv
// head) and walks over the keys that it sees. For all cache types but F32, head sizes that are
// multiples of 8 up to 256, and compute capability 8.0 and later. `rope_table`: see
// attention_hopper.h; only where can_run_hopper() is true.
void attention_prefill(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                       CacheTypes types, const float2* rope_table = nullptr);

}  // namespace bl::cuda
