#pragma once
#include <span>

#include "ops/matmul.h"

namespace bl::cuda {

// A few tokens: straight from the packed codes of outputs of one kind (EXL2 or GPTQ), all matrices
// in one launch, or in a few where there are more tokens than one takes. Of `args` the outputs are
// not read.
void packed_matmul(ExecContext& ctx, const MatmulArgs& args,
                   std::span<const MatmulOutput* const> outputs);

}  // namespace bl::cuda
