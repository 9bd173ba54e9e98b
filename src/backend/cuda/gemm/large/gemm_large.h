#pragma once
// Large GEMMs: activations become binary16 rows, and packed codes are dequantized either in
// registers (wgmma/) or into memory, from where cuBLASLt multiplies them (docs/adr/0028).

#include "backend/cuda/gemm/large/large_plan.h"
#include "ops/exec_context.h"
#include "ops/matmul.h"

namespace bl::cuda {

// Runs a planned GEMM: everything in `gemm` except what the GemmPlan runs in front or behind.
void gemm_large(ExecContext& ctx, const MatmulArgs& gemm, const LargePlan& plan);

// One plain matrix times F32 activations, kMaxDenseTokens rows at a time.
void dense_gemv_rows(ExecContext& ctx, const MatmulArgs& gemm, const MatmulOutput& output);

// One plain 16-bit matrix through cuBLASLt.
void dense_library_gemm(ExecContext& ctx, const MatmulArgs& gemm, const MatmulOutput& output);

}  // namespace bl::cuda
