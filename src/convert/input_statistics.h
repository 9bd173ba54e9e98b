#pragma once
#include "convert/products.h"

namespace bl {

// Sums over the tokens of one input x that linears share.
struct InputStatistics {
  Tensor hessian;  // F32 [in, in]: Σ xᵀx, the upper triangle
  // F32 [in, in]: Σ xᵀx' with the input x' of the original model. What linears without a stream of
  // their own should give follows from it: Σ xᵀ(x'·W) = (Σ xᵀx') · W.
  Tensor mixed;
  Tensor cross;  // F32 [in, out]: Σ xᵀy with the wanted output y of the only linear
  std::int64_t tokens = 0;

  // x: F32 [tokens, in].
  void add(Products& products, const TensorView& x);
  // As above; either `original` is given, F32 [tokens, in], or `wanted`, F32 [tokens, out].
  void add(Products& products, const TensorView& x, const TensorView& original,
           const TensorView& wanted);
};

}  // namespace bl
