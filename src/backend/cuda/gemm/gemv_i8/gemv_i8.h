#pragma once
// GEMV with int8 tensor cores: one token or two times packed codes (docs/adr/0012).
//
// Every CTA packs the activations for itself, as int8 limbs of fixed-point numbers, and multiplies
// its n_tiles of all matrices in one launch. On compute capability 9.0 and later a producer warp
// brings codes and scales through a shared-memory pipeline (gemv_i8_pipeline.cuh); on older cards
// the warps read them where they lie. A token's bits do not depend on whether there is another one.

#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/prefetch/weight_prefetch.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Enqueues it. `plan` is what plan_gemv_i8_launch() made of `args`. `copy_blocks`: those of one
// n_tile of each matrix, and where args.pairs says so their k_blocks are pairs. `prefetch`: what
// the producer warps ask L2 for when they have asked for everything of their own.
void gemv_i8(ExecContext& ctx, const PackedGemmArgs& args, const GemvPlan& plan,
             std::span<const std::span<const CopyBlock>> copy_blocks, const Prefetches& prefetch);

}  // namespace bl::cuda
