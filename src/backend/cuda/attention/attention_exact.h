#pragma once
#include "backend/cuda/attention/attention_params.h"
#include "backend/cuda/attention/attention_tables.h"

namespace bl::cuda {

// Attention of all spans in float, one row at a time: any cache type, head size and card. What is
// exact or rare comes here (F32 caches, odd head sizes, cards before 8.0); slow. A row's result has
// the same bits in any batch and chunk.
void attention_exact(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan);

}  // namespace bl::cuda
