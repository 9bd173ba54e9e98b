#pragma once
// GEMV on int8 tensor cores: y = W · x for one to four tokens and packed codes (EXL2, GPTQ). How
// many depends on the card (launch_plan.h) and on whether their limbs fit. See docs/adr/0012.
//
// Every CTA packs the activations for itself as int8 limbs of fixed-point numbers (limb_input.cuh),
// and multiplies whole n_tiles of all matrices of the launch by mma.m16n8k32 (limb_mma.cuh). Warps:
// 15 consumers, which take turns with the k_blocks of a stage and add up their partial sums at the
// end of a group of up to kGemvNTiles n_tiles, and one producer. It fills a pipeline of up to 8
// stages of equal length in shared memory (GemvPipelineShape), each with codes and scales of up to
// 4 or 8 copy_blocks, counted over its n_tiles: by bulk copies on compute capability 9.0 and later,
// by cp.async on 8.x; on 7.5 the consumers read from global memory. One CTA a multiprocessor.
//
// Bound: reading the weights. On an H200 llama3-8b reaches 0.65 of 4.38 TB/s at 4.0 bits
// (gemm/README.md). With several tokens, a token's bits do not depend on the others.

#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/prefetch/weight_prefetch.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Enqueues the GEMV. `plan`: what plan_gemv_i8_launch() returned for `args`. `copy_blocks`: those
// of one n_tile of each matrix; if args.pairs, their k_blocks are pairs. `prefetch`: what the
// producer warps prefetch to L2 once all their own copies are issued.
void gemv_i8(ExecContext& ctx, const PackedGemmArgs& args, const GemvPlan& plan,
             std::span<const std::span<const CopyBlock>> copy_blocks, const Prefetches& prefetch);

}  // namespace bl::cuda
