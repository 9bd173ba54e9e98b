#pragma once
#include <cuda_runtime_api.h>

#include "ops/attention.h"

namespace bl::cuda {

// rope_and_write() for attention that applies rope to its queries itself: the queries stay
// unchanged, and rope_table[token][rotated / 2] receives (cosine, sine) · scale. Only where
// can_write_rope_table() is true.
void write_kv_and_rope_table(ExecContext& ctx, const RopeAndWriteArgs& args, float2* rope_table);
bool can_write_rope_table(const RopeAndWriteArgs& args);

}  // namespace bl::cuda
