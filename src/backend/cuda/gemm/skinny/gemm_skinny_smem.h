#pragma once
// Skinny GEMM with activations in shared memory: packed codes (EXL2, GPTQ) times up to 16 tokens a
// launch, 8 on cards with little shared memory. The launch plan uses it for 2 to 64 tokens, on
// compute capability 9.0 for small launches of 9 to 16; `--deterministic` uses it for any number.
//
// pack_activations() packs the activations in front. On compute capability 9.0 and later a producer
// warp brings copy_blocks to shared memory (smem_pipeline.cuh); on older cards the 15 consumer
// warps read codes from global memory. A stage holds the codes and scales of one copy_block (up to
// 32 k_steps) of 2 or 3 n_tiles, its k_blocks, and 64 bytes of activations a token and k_step.
// Codes become operand A of mma.m16n8k16 in registers (k_block_mma.cuh); the warps' partial sums
// are reduced in shared memory.
//
// Bound by the instructions that decode codes and by shared memory; not measured as a share.

#include "backend/cuda/gemm/skinny/skinny_plan.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Enqueues the GEMM. args.tokens ≤ max_skinny_tokens(). `begins`: the device's copy of `ranges`.
void gemm_skinny_smem(ExecContext& ctx, const PackedGemmArgs& args, const CtaRanges& ranges,
                      const std::int32_t* begins);

}  // namespace bl::cuda
