#pragma once
#include "backend/cuda/gemm/large/plain_gemv_launch.h"
#include "ops/exec_context.h"

namespace bl::cuda {

inline constexpr int kMaxDenseTokens = 8;

// GEMV of a plain matrix: F32 activations of up to kMaxDenseTokens tokens, weights F32, F16 or
// BF16, a warp a column, any card. Bound by reading the matrix; the share is not measured. With
// ctx.deterministic one kernel serves any number of tokens.
void dense_gemv(ExecContext& ctx, const DenseGemvArgs& args);

}  // namespace bl::cuda
