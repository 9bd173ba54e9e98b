#pragma once
#include "backend/cuda/attention/attention_params.h"
#include "backend/cuda/attention/attention_tables.h"

namespace bl::cuda {

// Attention of the plan's prefill spans: a CTA keeps a tile of rows (tokens × query heads of a kv
// head) and walks over the keys they see. For all cache types but F32; heads of a multiple of 8, at
// most 256; compute capability 8.0. `turns`: see attention_hopper.h, only where takes_hopper says
// so.
void attention_prefill(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                       CacheTypes types, const float2* turns = nullptr);

}  // namespace bl::cuda
