#pragma once
#include "ops/packed_matrix.h"
#include "tensor/tensor_view.h"

namespace bl {

// What one matrix alone reads, as the products of a backend like it best
// (OpTable::half_input_width): the input of channel c of a token lies where `reader` has that
// channel, as binary16, divided by *power. Ops that are given one leave their result in it, and do
// not write their `out`.
struct HalfInput {
  const PackedMatrix* reader = nullptr;
  TensorView rows;         // F16 [tokens, half_input_width], contiguous
  float* power = nullptr;  // a power of two, in the backend's memory
};

}  // namespace bl
