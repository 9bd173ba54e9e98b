#pragma once
#include "backend/cuda/attention/attention_params.h"
#include "backend/cuda/attention/attention_tables.h"

namespace bl::cuda {

// Attention of all spans in F32, each query row by itself: any cache type, head size and card. It
// is slow, and takes what the tensor-core kernels do not: F32 caches, head sizes that are not
// multiples of 8 or exceed 256, cards before 8.0, and deterministic mode. The result of a row has
// the same bits in any batch and in any chunking of a prompt.
void attention_exact(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan);

}  // namespace bl::cuda
