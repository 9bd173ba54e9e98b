#pragma once
// Mixture of experts; the contracts are in src/ops.

#include "ops/exec_context.h"
#include "ops/matmul.h"

namespace bl::cuda {

void route(ExecContext& ctx, const RouteArgs& args);
void experts(ExecContext& ctx, const ExpertsArgs& args);

}  // namespace bl::cuda
