#pragma once
// How a step's context becomes a GemmProblem, and the questions about fusion that need no GEMM.

#include "backend/cuda/gemm/gemm_problem.h"
#include "ops/exec_context.h"
#include "ops/staged_input.h"

namespace bl::cuda {

// The problem that choose_route() solves on the card of `ctx`. `gemm` must outlive it.
GemmProblem gemm_problem(const ExecContext& ctx, const MatmulArgs& gemm);

// Whether the StagedInput of a step is in fragment order (staged_input.h), and not binary16 rows.
bool is_staged_fragments(const ExecContext& ctx, const StagedInput& staged);

}  // namespace bl::cuda
