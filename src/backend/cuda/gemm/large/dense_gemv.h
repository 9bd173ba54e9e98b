#pragma once
#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

inline constexpr int kMaxDenseTokens = 8;

// A few tokens times a plain matrix, F32 activations: bound by reading the matrix.
struct DenseGemvArgs {
  TensorView x;                // F32 [tokens, in], at most kMaxDenseTokens
  const void* rows = nullptr;  // [out, in]
  DType type = DType::kF16;
  TensorView out;               // F32 [tokens, out]
  const float* bias = nullptr;  // [out] or null
  float multiplier = 1.0f;
  bool accumulate = false;
};
// Where ctx is deterministic, by the same kernel for any number of tokens.

void dense_gemv(ExecContext& ctx, const DenseGemvArgs& args);

}  // namespace bl::cuda
