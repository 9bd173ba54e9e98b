#pragma once
#include <cuda_fp16.h>

#include "backend/cuda/layout/code_matrix.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Dequantizes n_tiles [first_n_tile, first_n_tile + n_tiles) of a packed matrix into binary16 rows
// [n_tiles · 16][k_steps · 32], one a column, in the order of k; rounded as the formats say. For
// cuBLASLt on cards without the wgmma path. Bound by writing the rows.
struct DequantizeArgs {
  CodeMatrixView view;
  int first_n_tile = 0;
  int n_tiles = 0;
  __half* rows = nullptr;
};

void dequantize(ExecContext& ctx, const DequantizeArgs& args);

}  // namespace bl::cuda
