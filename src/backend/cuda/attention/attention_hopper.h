#pragma once
#include "backend/cuda/attention/attention_params.h"
#include "backend/cuda/attention/attention_tables.h"

namespace bl::cuda {

// Whether the kernels for compute capability 9.0 can run: for binary16 caches with heads of 64 or
// 128, on exactly that compute capability. Always false in builds without sm_90a code.
bool can_run_hopper(const ExecContext& ctx, const AttentionParams& params, CacheTypes types);

// attention_prefill() where can_run_hopper() is true. `rope_table`: (cosine, sine) for each token
// of the step and each pair of a head, [tokens][k_dim / 2], to apply rope to the queries first, in
// pairs half a head apart; or null.
void attention_hopper(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      const float2* rope_table);

// attention_decode() of the first `spans` spans, where can_run_hopper() is true and split.kv_splits
// > 0.
void attention_hopper_split(ExecContext& ctx, const AttentionParams& params,
                            const HopperSplit& split, int spans);

}  // namespace bl::cuda
