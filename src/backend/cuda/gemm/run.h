#pragma once
// Plans a GEMM and runs the plan.

#include "backend/cuda/gemm/route.h"
#include "backend/cuda/prefetch/weight_prefetch.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Returns the prefetch list of a GEMM; called only if its kernel has a producer warp to issue it.
using PlanPrefetches = Prefetches (*)(const ExecContext&, const MatmulArgs&);

// choose_route(), then run_gemm().
void matmul_by_plan(ExecContext& ctx, const MatmulArgs& args, PlanPrefetches prefetches);

// Executes a plan. Decides nothing.
void run_gemm(ExecContext& ctx, const MatmulArgs& args, GemmPlan& plan, PlanPrefetches prefetches);

}  // namespace bl::cuda
