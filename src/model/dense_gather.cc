#include "model/dense_gather.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "format/select_outputs.h"
#include "tensor/tensor.h"

namespace bl {
namespace {

HostArray host_array(DType dtype, const Shape& shape) {
  auto tensor = std::make_shared<Tensor>(make_host_tensor(dtype, shape));
  const TensorView view = tensor->view();
  return {view, std::move(tensor)};
}

template <class Bytes>
HostArray gather(const HostArray& from, std::span<const std::int64_t> rows, bool transposed) {
  const bool flat = from.view.shape.rank() == 1;
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t in = flat ? 1 : from.view.shape[transposed ? 0 : 1];
  const std::int64_t out = from.view.shape[transposed ? 1 : 0];
  HostArray result = host_array(from.view.dtype, flat ? Shape{count} : Shape{count, in});
  const auto* source = from.view.as<const Bytes>();
  auto* to = result.view.as<Bytes>();
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t row = rows[static_cast<std::size_t>(r)];
    BL_CHECK(row >= 0 && row < out);
    if (!transposed) {
      std::memcpy(to + r * in, source + row * in, static_cast<std::size_t>(in) * sizeof(Bytes));
      continue;
    }
    for (std::int64_t i = 0; i < in; ++i) to[r * in + i] = source[i * out + row];
  }
  return result;
}

HostArray gather_any(const HostArray& from, std::span<const std::int64_t> rows, bool transposed) {
  return size_of(from.view.dtype) == 4 ? gather<std::uint32_t>(from, rows, transposed)
                                       : gather<std::uint16_t>(from, rows, transposed);
}

}  // namespace

bool gathers_copy(const DenseMatrix& matrix, std::span<const std::int64_t> rows) {
  const auto neighbours = [](std::int64_t a, std::int64_t b) { return b != a + 1; };
  return matrix.transposed ||
         std::adjacent_find(rows.begin(), rows.end(), neighbours) != rows.end();
}

DenseMatrix gather_outputs(const DenseMatrix& matrix, std::span<const std::int64_t> rows) {
  if (!gathers_copy(matrix, rows)) {
    return std::get<DenseMatrix>(slice_outputs(matrix, rows.front(), std::ssize(rows)));
  }
  DenseMatrix result;
  result.name = matrix.name;
  result.weight = gather_any(matrix.weight, rows, matrix.transposed);
  if (!matrix.bias.view.empty()) result.bias = gather_biases(matrix, rows);
  return result;
}

HostArray gather_biases(const DenseMatrix& matrix, std::span<const std::int64_t> rows) {
  return gather_any(matrix.bias, rows, false);
}

DenseMatrix normalized_outputs(const DenseMatrix& matrix) {
  BL_CHECK(!matrix.transposed);
  DenseMatrix result;
  result.name = matrix.name;
  result.bias = matrix.bias;
  result.weight = host_array(DType::kF32, matrix.weight.view.shape);
  const std::int64_t in = matrix.in();
  visit_float_dtype(matrix.weight.view.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t row = 0; row < matrix.out(); ++row) {
      const T* from = matrix.weight.view.row<const T>(row);
      float* to = result.weight.view.row<float>(row);
      double squares = 0.0;
      for (std::int64_t i = 0; i < in; ++i) {
        to[i] = static_cast<float>(from[i]);
        squares += static_cast<double>(to[i]) * static_cast<double>(to[i]);
      }
      const auto length = static_cast<float>(std::max(std::sqrt(squares), 1e-12));
      for (std::int64_t i = 0; i < in; ++i) to[i] /= length;
    }
  });
  return result;
}

}  // namespace bl
