#pragma once
#include "ops/elementwise.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// act(gate) · up into args.staged_out, as the binary16 rows of a large GEMM. `halves`: gate and up
// are binary16, multiplied by kHalfGate, at the beginning of each row.
void activate_into_halves(ExecContext& ctx, const ActivateArgs& args, bool halves);

}  // namespace bl::cuda
