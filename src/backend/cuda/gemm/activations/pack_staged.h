#pragma once
#include "backend/cuda/gemm/activations/staged_input.h"
#include "ops/exec_context.h"
#include "ops/staged_input.h"

namespace bl::cuda {

// Returns what a kernel needs to stage its result in `staged`.
StagedFragments staged_fragments_of(const StagedInput& staged);

// Stages rows of x, F32 [tokens, in], by a launch of its own.
void pack_staged(ExecContext& ctx, const TensorView& x, const StagedInput& staged);

}  // namespace bl::cuda
