#include "convert/input_statistics.h"

namespace bl {

void InputStatistics::add(Products& products, const TensorView& x) { add(products, x, {}); }

void InputStatistics::add(Products& products, const TensorView& x, std::span<const Tensor> wanted) {
  const std::int64_t in = x.columns();
  if (hessian.empty()) hessian = zero_matrix(in, in);
  const Tensor columns = transposed(products, x);
  products.add(hessian.view(), columns.view(), columns.view());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const TensorView& y = wanted[i].view();
    if (cross.size() <= i) cross.push_back(zero_matrix(in, y.columns()));
    products.add(cross[i].view(), columns.view(), transposed(products, y).view());
  }
  tokens += x.rows();
}

}  // namespace bl
