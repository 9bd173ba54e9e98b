#include "convert/input_statistics.h"

namespace bl {
namespace {

// sum [rows of a, rows of bᵀ] += columns · y, where y is [tokens, n].
void add_product(Products& products, Tensor& sum, const Tensor& columns, const TensorView& y) {
  if (sum.empty()) sum = zero_matrix(columns.view().rows(), y.columns());
  products.add(sum.view(), columns.view(), transposed(products, y).view());
}

}  // namespace

void InputStatistics::add(Products& products, const TensorView& x) { add(products, x, {}, {}); }

void InputStatistics::add(Products& products, const TensorView& x, const TensorView& original,
                          const TensorView& wanted) {
  if (hessian.empty()) hessian = zero_matrix(x.columns(), x.columns());
  const Tensor columns = transposed(products, x);
  products.add_upper_gram(hessian.view(), columns.view());
  if (!original.empty()) add_product(products, mixed, columns, original);
  if (!wanted.empty()) add_product(products, cross, columns, wanted);
  tokens += x.rows();
}

}  // namespace bl
