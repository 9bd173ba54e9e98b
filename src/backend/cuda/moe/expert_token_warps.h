#pragma once
// GEMVs of one token's experts (expert_token.h) that are so small that each CTA has one item, whose
// codes fit in shared memory once or twice. Each warp copies what it multiplies.

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/moe/expert_token_args.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Plans the launch if it is one of these; returns whether it is.
bool plan_own_codes(const DeviceFacts& facts, ExpertTokenArgs& args);
void expert_token_warps(ExecContext& ctx, const ExpertTokenArgs& args);

}  // namespace bl::cuda
