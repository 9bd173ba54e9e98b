#pragma once
#include "ops/packed_matrix.h"
#include "tensor/tensor_view.h"

namespace bl {

// The input of exactly one GEMM in the form that the backend's kernel for it reads best: binary16,
// every feature where `reader` has it (GemmFusion::staged_width says whether there is such a form).
// An op that is given one leaves its result there; whether it also writes its F32 `out` is the
// backend's business. The GEMM that reads it is given that `out` as its x too, if the op had one.
struct StagedInput {
  const PackedMatrix* reader = nullptr;
  TensorView rows;              // F16 [tokens, staged_width], contiguous
  float* row_scales = nullptr;  // [tokens], in the backend's memory: how rows are scaled
};

}  // namespace bl
