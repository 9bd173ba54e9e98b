#pragma once
// Skinny GEMM with activations in registers: 2 to 24 tokens times packed codes, up to 16 a launch.
//
// Every warp of a CTA holds the activations of its k_steps in registers for all n_tiles of the CTA,
// and brings the codes of these k_steps itself, through a cp.async pipeline of its own. So
// activations are read once, shared memory is left to codes, and warps meet only where their sums
// are added up. With split-K each k_split has CTAs and partial sums of its own, which whoever reads
// them adds up (splitk/): no CTA waits for another. Compute capability 9.0 and later.

#include "backend/cuda/gemm/skinny/skinny_plan.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Enqueues it. With several k_splits the one output is [k_splits, k_split_rows, columns] of partial
// sums, and nothing but the products goes into it.
void gemm_skinny_regs(ExecContext& ctx, const PackedGemmArgs& args, const SkinnyRegsPlan& plan,
                      int k_split_rows);

}  // namespace bl::cuda
