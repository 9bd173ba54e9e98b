#pragma once
#include "backend/cuda/attention_params.h"
#include "backend/cuda/attention_tables.h"

namespace bl::cuda {

// attention_prefill for cards of compute capability 9.0, binary16 caches and heads of 64 or 128:
// false, and nothing done, elsewhere and in builds without code for such cards.
bool attention_hopper(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      CacheType type);

}  // namespace bl::cuda
