#pragma once
// Sums of several parts that lie beside one another.

#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

struct PartialSums {
  TensorView to;                // F32 [rows, columns]
  TensorView from = {};         // the same, or empty: what parts are added to
  TensorView partials;          // F32 [parts, rows, columns], whole
  const float* bias = nullptr;  // [columns] or null
};

// to = from + Σ parts, in their order, + bias.
void reduce_partials(ExecContext& ctx, const PartialSums& sums);

}  // namespace bl::cuda
