#pragma once
#include "backend/cuda/attention/attention_params.h"
#include "backend/cuda/attention/attention_tables.h"

namespace bl::cuda {

// What there is for cards of compute capability 9.0, of binary16 caches and heads of 64 or 128;
// nowhere in builds without code for such cards.
bool takes_hopper(const ExecContext& ctx, const AttentionParams& params, CacheTypes types);

// attention_prefill where takes_hopper says so. `turns`: of each token, by which queries are turned
// first, pairs half a head apart; or null.
void attention_hopper(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      const float2* turns);

// attention_decode of the first `spans` spans, where takes_hopper says so and `split` has pieces.
void attention_hopper_pieces(ExecContext& ctx, const AttentionParams& params,
                             const HopperSplit& split, int spans);

}  // namespace bl::cuda
