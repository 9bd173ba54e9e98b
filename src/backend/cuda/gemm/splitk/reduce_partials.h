#pragma once
// Split-K: adds up the partial sums of the k_splits.

#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

struct PartialSums {
  TensorView to;                // F32 [rows, columns]
  TensorView from = {};         // of that shape, added to the partial sums; or empty
  TensorView partials;          // F32 [k_splits, rows, columns], contiguous
  const float* bias = nullptr;  // [columns] or null
};

// to = from + Σ partials + bias, in this fixed order.
void reduce_partials(ExecContext& ctx, const PartialSums& sums);

}  // namespace bl::cuda
