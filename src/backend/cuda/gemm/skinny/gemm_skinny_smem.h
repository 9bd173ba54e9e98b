#pragma once
// Skinny GEMM with activations in shared memory: up to 16 tokens a launch times packed codes.
//
// Activations were packed by a launch in front (pack_activations.h). On compute capability 9.0 and
// later a producer warp brings codes, scales and activations of a copy_block through a
// shared-memory pipeline; on older cards the warps read them where they lie. Codes become the A
// operand of mma.m16n8k16 in registers; sums of warps meet in shared memory.

#include "backend/cuda/gemm/skinny/skinny_plan.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Enqueues it, for args.tokens ≤ max_skinny_tokens(). `begins`: the device's copy of `ranges`.
void gemm_skinny_smem(ExecContext& ctx, const PackedGemmArgs& args, const CtaRanges& ranges,
                      const std::int32_t* begins);

}  // namespace bl::cuda
