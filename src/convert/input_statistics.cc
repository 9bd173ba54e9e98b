#include "convert/input_statistics.h"

namespace bl {
namespace {

// sum [columns of x, columns of y] += xᵀ · y
void add_product(Products& products, Tensor& sum, const TensorView& x, const TensorView& y) {
  if (sum.empty()) sum = products.zeros(x.columns(), y.columns());
  products.add_outer(sum.view(), x, y);
}

}  // namespace

void InputStatistics::add(Products& products, const TensorView& x) { add(products, x, {}, {}); }

void InputStatistics::add(Products& products, const TensorView& x, const TensorView& original,
                          const TensorView& wanted) {
  if (hessian.empty()) hessian = products.zeros(x.columns(), x.columns());
  products.add_upper_gram(hessian.view(), x);
  if (!original.empty()) add_product(products, mixed, x, original);
  if (!wanted.empty()) add_product(products, cross, x, wanted);
  tokens += x.rows();
}

}  // namespace bl
