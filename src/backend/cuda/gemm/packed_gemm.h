#pragma once
#include <span>

#include "ops/matmul.h"

namespace bl::cuda {

// A few tokens: straight from the packed codes of outputs of one kind (EXL2 or GPTQ), all matrices
// in one launch, or in a few where there are more tokens than one takes. Of `args` the outputs are
// not read.
void packed_gemm(ExecContext& ctx, const MatmulArgs& args,
                 std::span<const MatmulOutput* const> outputs);

// Whether packed_gemm() leaves act(gate) and up where args.activation has its product left, and
// whether it multiplies x by args.x_deferred_mul.
bool can_defer_gate_mul(const ExecContext& ctx, const MatmulArgs& args);
bool can_apply_deferred_mul(const ExecContext& ctx, const MatmulArgs& args);

bool has_partials(const MatmulArgs& args);
// Whether packed_gemm() makes such a product of outputs that all have codes of one kind.
bool can_take_partials(const ExecContext& ctx, const MatmulArgs& args);

}  // namespace bl::cuda
