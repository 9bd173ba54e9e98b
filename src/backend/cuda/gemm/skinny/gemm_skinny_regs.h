#pragma once
// Skinny GEMM with activations in registers: 2 to 24 tokens times packed codes (EXL2, GPTQ), up to
// 16 a launch; compute capability 9.0 and later. On 9.0 the launch plan uses it for 3 to 16 tokens,
// in small launches for 3 to 8.
//
// A CTA has 16 warps and no producer: every warp holds the activations of up to 8 k_steps in
// registers for all n_tiles of the CTA (operand B of mma.m16n8k16), and copies the codes of these
// k_steps itself, through a cp.async pipeline of its own. A stage holds the codes of one n_tile, or
// of two if there are up to 8 tokens, with their scales: RegsLayout. So activations are read once,
// shared memory is left to codes, and the warps meet only where their sums are reduced (full/empty
// barriers in RegsSmem). With split-K each k_split has its own CTAs and partial sums, which their
// reader adds up (splitk/): no CTA waits for another.
//
// Bound by the instructions that decode codes; 0.34 of memory bandwidth with 16 tokens
// (gemm/README.md).

#include "backend/cuda/gemm/skinny/skinny_plan.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Enqueues the GEMM. With several k_splits the only output is [k_splits, k_split_rows, columns] of
// partial sums, without bias or accumulation.
void gemm_skinny_regs(ExecContext& ctx, const PackedGemmArgs& args, const SkinnyRegsPlan& plan,
                      int k_split_rows);

}  // namespace bl::cuda
