#pragma once
#include "convert/products.h"

namespace bl {

// Sums over the tokens of one input that linears share.
struct InputStatistics {
  Tensor hessian;             // F32 [in, in]: Σ xᵀx
  std::vector<Tensor> cross;  // per linear, F32 [in, out]: Σ xᵀy with the wanted outputs y; or none
  std::int64_t tokens = 0;

  // x: F32 [tokens, in].
  void add(Products& products, const TensorView& x);
  // As above, with the wanted outputs of each linear: F32 [tokens, out].
  void add(Products& products, const TensorView& x, std::span<const Tensor> wanted);
};

}  // namespace bl
