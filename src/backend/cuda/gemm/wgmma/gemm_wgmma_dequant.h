#pragma once
// GEMM on wgmma with packed codes that are dequantized in registers on their way into operand A:
// nothing is expanded in memory. Compute capability 9.0 alone; a library of its own, since its code
// is compiled for sm_90a. wgmma_plan.h says how a launch is cut.

#include "backend/cuda/gemm/wgmma/wgmma_plan.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Whether this build has the kernels and the card can run them.
bool has_wgmma(const DeviceFacts& facts);

// Enqueues a planned launch. Takes kPartialFloats floats of scratch at most, where K is split.
void gemm_wgmma_dequant(ExecContext& ctx, const WgmmaPlan& plan);

}  // namespace bl::cuda
