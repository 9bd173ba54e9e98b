#pragma once
#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

// Rows of 16-bit activations for a matrix multiplication.
struct Rows16Args {
  TensorView x;                                   // F32 [tokens, in]
  const std::int32_t* channel_of_slot = nullptr;  // [slots], −1: 0; null: channels as they are
  std::int64_t slots = 0;                         // even
  DType type = DType::kF16;  // kF16: divided by a power of two, so that nothing overflows; or kBF16
  void* rows = nullptr;      // [tokens, slots]
  float multiplier = 1.0f;
  float* alpha = nullptr;        // out, device: multiplier times that power
  float* row_largest = nullptr;  // [tokens] scratch, kF16 only
};

void make_rows16(ExecContext& ctx, const Rows16Args& args);

// row_largest of those rows: needed once for all matrices that read the same x.
void find_largest(ExecContext& ctx, const TensorView& x, float* row_largest);

// out [tokens, columns] += bias [columns].
void add_bias(ExecContext& ctx, const TensorView& out, const float* bias);

}  // namespace bl::cuda
