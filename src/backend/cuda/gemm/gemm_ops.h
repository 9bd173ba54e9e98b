#pragma once
// The ops that lead to GEMMs; their contracts are in src/ops.

#include "ops/exec_context.h"
#include "ops/matmul.h"

namespace bl::cuda {

void matmul(ExecContext& ctx, const MatmulArgs& args);
// Lives here since it can leave its result staged for the GEMM that reads it.
void activate(ExecContext& ctx, const ActivateArgs& args);
GemmFusion gemm_fusion(const ExecContext& ctx, const GemmFusionQuery& query);

}  // namespace bl::cuda
