#pragma once
// The ops that run as GEMMs; their contracts are in src/ops.

#include "ops/exec_context.h"
#include "ops/matmul.h"

namespace bl::cuda {

void matmul(ExecContext& ctx, const MatmulArgs& args);
// Lives here because its result can be staged for the GEMM that reads it.
void activate(ExecContext& ctx, const ActivateArgs& args);
GemmFusion gemm_fusion(const ExecContext& ctx, const GemmFusionQuery& query);

}  // namespace bl::cuda
