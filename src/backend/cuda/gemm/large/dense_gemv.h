#pragma once
#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

inline constexpr int kMaxDenseTokens = 8;

// GEMV of a plain matrix: F32 activations of up to 8 tokens, weights F32, F16 or BF16, a warp a
// column, any card. Bound by reading the matrix; the share is not measured. With ctx.deterministic
// one kernel serves any number of tokens.
struct DenseGemvArgs {
  TensorView x;                // F32 [tokens, in], at most kMaxDenseTokens
  const void* rows = nullptr;  // [out, in]
  DType type = DType::kF16;
  TensorView out;               // F32 [tokens, out]
  const float* bias = nullptr;  // [out] or null
  float multiplier = 1.0f;
  bool accumulate = false;
};

void dense_gemv(ExecContext& ctx, const DenseGemvArgs& args);

}  // namespace bl::cuda
