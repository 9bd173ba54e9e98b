#pragma once
#include <cstdint>
#include <vector>

#include "convert/products.h"

namespace bl {

// In which order rounding goes through the channels of an input. The later a channel, the fewer are
// left that can make up for its error, so that channels with a large diagonal should come first.
struct SlotOrder {
  enum class Kind {
    kImportance,  // by falling diagonal
    // Groups of `group_size` neighbouring channels by their largest diagonal, and within a group by
    // falling diagonal, so that a group of slots is a group of channels. A last group that is short
    // stays last.
    kGroupImportance,
    kChannels,  // as they come
  };
  Kind kind = Kind::kImportance;
  std::int64_t group_size = 0;  // of kGroupImportance
};

// The Hessian of one input as rounding needs it: channels in the order of slots, damped, and
// factored. Shared by all linears that read the input.
struct OrderedHessian {
  std::vector<std::int32_t> perm;  // [in]: slot → channel
  Tensor h;                        // F32 [in, in] in slot order, damped
  // F32 [in, in]: the transpose of U, where H⁻¹ = Uᵀ · U and U is upper triangular (Frantar et al.,
  // "GPTQ", arXiv 2210.17323).
  Tensor u_transposed;
  Tensor importance;        // F32 [in]: 1 / U[k][k]², the loss of a unit error in slot k
  std::int64_t tokens = 0;  // that the statistics were taken from
  double damping = 0.0;     // what was added to the diagonal
  int added_damping = 0;    // how often the damping had to be raised; 0 is usual
};

// `sum`: F32 [in, in], Σ xᵀx over `tokens` tokens in channel order; only its upper triangle is
// read. `damping` is relative to the mean of the diagonal. Throws kInvalidArgument if the matrix
// holds values that are not finite, or cannot be made positive definite.
OrderedHessian order_hessian(Products& products, const TensorView& sum, std::int64_t tokens,
                             double damping, const SlotOrder& order = {});

// Rows of W, [out, in] of any float type in host memory, as columns in slot order: F32 [in, padded
// out].
Tensor in_slot_order(Products& products, const TensorView& weight,
                     const std::vector<std::int32_t>& perm, std::int64_t padded_out);

}  // namespace bl
