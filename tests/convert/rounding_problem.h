#pragma once
// Small problems for rounding, and naive code to compare with.

#include <functional>
#include <vector>

#include "convert/ordered_hessian.h"
#include "convert/rounded_matrix.h"

namespace bl::test {

using Doubles = std::vector<double>;

struct Problem {
  std::int64_t in = 0;
  std::int64_t out = 0;
  Tensor sum;     // [in, in]
  Tensor weight;  // [out, in]
  std::int64_t tokens = 256;
};

// Inputs whose channels differ in size and hang together.
Problem make_problem(std::int64_t in, std::int64_t out, unsigned seed);

struct NaiveGrid {
  float scale = 0.0f;
  int zero = 0;
};

// Optimal brain quantization of one column, `w` in slot order, with the given grid of each group:
// after each slot the inverse Hessian of the slots that are left is found anew.
std::vector<int> naive_codes(const GroupList& groups, const TensorView& h, Doubles w,
                             const std::function<NaiveGrid(std::size_t group)>& grid_of);

// Σ_c (ŵ_c − w_c)ᵀ H (ŵ_c − w_c), where `rows` are the decoded weights: binary16 [out, in].
double decoded_loss(const SlotCodes& codes, const std::vector<std::uint16_t>& rows,
                    const TensorView& h, const TensorView& wanted);

}  // namespace bl::test
