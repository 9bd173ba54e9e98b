#pragma once
#include <cstdint>
#include <vector>

#include "convert/products.h"

namespace bl {

// The Hessian of one input as rounding needs it: channels in the order of slots, damped, and
// factored. Shared by all linears that read the input.
struct OrderedHessian {
  std::vector<std::int32_t> perm;  // [in]: slot → channel, by falling diagonal
  Tensor h;                        // F32 [in, in] in slot order, damped
  // F32 [in, in]: the transpose of U, where H⁻¹ = Uᵀ · U and U is upper triangular (Frantar et al.,
  // "GPTQ", arXiv 2210.17323).
  Tensor u_transposed;
  std::vector<float> importance;  // [in]: 1 / U[k][k]², the loss of a unit error in slot k
  std::int64_t tokens = 0;        // that the statistics were taken from
  double damping = 0.0;           // what was added to the diagonal
  int added_damping = 0;          // how often the damping had to be raised; 0 is usual
};

// `sum`: F32 [in, in], Σ xᵀx over `tokens` tokens in channel order; only its upper triangle is
// read. `damping` is relative to the mean of the diagonal. Throws kInvalidArgument if the matrix
// holds values that are not finite, or cannot be made positive definite.
OrderedHessian order_hessian(Products& products, const TensorView& sum, std::int64_t tokens,
                             double damping);

// Rows of W, [out, in] of any float type, as columns in slot order: F32 [in, padded out].
Tensor in_slot_order(Products& products, const TensorView& weight,
                     const std::vector<std::int32_t>& perm, std::int64_t padded_out);

}  // namespace bl
