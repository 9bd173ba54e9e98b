#pragma once
#include <cuda_fp16.h>

#include "backend/cuda/layout/code_matrix.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Strips [first, first + count) of a packed matrix as binary16 rows [count · 16][units · 32], one a
// column, in order of the slots; rounded as the formats say.
struct DequantizeArgs {
  CodeMatrixView view;
  int first_n_tile = 0;
  int n_tiles = 0;
  __half* rows = nullptr;
};

void dequantize(ExecContext& ctx, const DequantizeArgs& args);

}  // namespace bl::cuda
