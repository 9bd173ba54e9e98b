#pragma once
#include "ops/packed_matrix.h"
#include "tensor/tensor_view.h"

namespace bl {

// What one matrix alone reads, as the products of a backend like it best
// (OpTable::staged_input_width): binary16, each channel where `reader` has it. Ops that are given
// one leave their result in it; whether they write their `out` beside it is the backend's business.
// The product that reads it is given that `out` as its x, if the op had one.
struct StagedInput {
  const PackedMatrix* reader = nullptr;
  TensorView rows;              // F16 [tokens, staged_input_width], contiguous
  float* row_scales = nullptr;  // [tokens], in the backend's memory: how rows are scaled
};

}  // namespace bl
