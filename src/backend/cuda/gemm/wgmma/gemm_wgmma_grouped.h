#pragma once
// Grouped GEMM on wgmma with packed codes (EXL2, GPTQ): the experts of a layer where each has many
// rows, compute capability 9.0 alone. Codes are dequantized in registers into operand A, as in
// gemm_wgmma_dequant. One launch multiplies all groups; wgmma_grouped_plan.h says how.
//
// A stage holds 256 rows × 64 k of activations (32,768 bytes), codes of 8 n_tiles and their scales,
// and a header: 37,920 bytes for 4-bit EXL2 codes.
//
// Bound by the tensor cores; bench/ladder/moe_prefill.md says what share is reached.

#include "backend/cuda/gemm/wgmma/wgmma_grouped_plan.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Enqueues a planned launch, where has_wgmma(). With an activation a second launch follows, which
// repeats the tiles if the rows have to be divided by a scale.
void gemm_wgmma_grouped(ExecContext& ctx, const WgmmaGroupedPlan& plan);

}  // namespace bl::cuda
