#pragma once
// GEMVs of one token's experts with packed codes, compute capability 9.0 and later. CTAs are
// persistent, have adjacent items, and stream codes through the smem pipeline as in
// expert_stream.h.
//
// Gate and up: an item is the same n_tiles of both matrices of one expert. The consumer warps make
// limbs of the token's row themselves while the first codes are on their way, and the epilogue
// activates. Down: an item is a few n_tiles of all experts that the token chose, walked over one
// behind the other as if K were that long, so that nothing is left to be added up. Its rows are
// longer and were packed by pack_expert_limbs().
//
// Bound by reading the chosen experts' weights, and by latencies where experts are small:
// bench/ladder/moe_decode.md.

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/moe/expert_token_args.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Whether a CTA has room for the limbs of a row of `k_steps` k_steps.
bool has_room_for_limbs(const DeviceFacts& facts, std::int64_t k_steps);

// Plans the launch: call it when all else is set.
void plan_expert_token(const DeviceFacts& facts, ExpertTokenArgs& args);

// What a launch prefetches of the planned launch behind it, which sums.
ExpertTokenArgs::Next next_of(const ExpertTokenArgs& args);

void expert_token_gemv(ExecContext& ctx, const ExpertTokenArgs& args);

}  // namespace bl::cuda
