#include "backend/cuda/fitting/product.h"

#include <algorithm>

#include "backend/cuda/gemm/gemm_state.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

// Columns of an upper triangle that are computed together, down to their diagonal.
constexpr std::int64_t kTriangleColumns = 1024;

void multiply(FittingDevice& device, const ProductArgs& args) {
  const TensorView &out = args.out, &a = args.a, &b = args.b;
  const std::int64_t k = args.a_transposed ? a.rows() : a.columns();
  BL_CHECK(out.rows() == (args.a_transposed ? a.columns() : a.rows()));
  BL_CHECK(out.columns() == (args.b_transposed ? b.rows() : b.columns()));
  BL_CHECK(k == (args.b_transposed ? b.columns() : b.rows()));
  if (out.shape.elements() == 0 || k == 0) return;
  constexpr float kOne = 1.0f;  // `out` is added to
  gemm_state(device.context())
      .blas.run({.type = DType::kF32,
                 .x = a.data,
                 .w = b.data,
                 .out = out.data,
                 .tokens = out.rows(),
                 .columns = out.columns(),
                 .in = k,
                 .out_stride = out.row_stride,
                 .out_scale = &args.multiplier,
                 .beta = &kOne,
                 .host_scales = true,
                 .x_stride = a.row_stride,
                 .w_stride = b.row_stride,
                 .x_transposed = args.a_transposed,
                 .w_transposed = !args.b_transposed},
                device.stream());
}

// Rows [begin, begin + count) of op(b) or columns of op(a), whichever way they lie.
TensorView part_of(const TensorView& view, bool in_rows, std::int64_t begin, std::int64_t count) {
  return in_rows ? slice_rows(view, begin, count) : slice_columns(view, begin, count);
}

}  // namespace

void add_product(FittingDevice& device, const ProductArgs& args) {
  if (!args.upper) return multiply(device, args);
  const std::int64_t columns = args.out.columns();
  for (std::int64_t begin = 0; begin < columns; begin += kTriangleColumns) {
    const std::int64_t count = std::min(kTriangleColumns, columns - begin);
    const std::int64_t rows = std::min(args.out.rows(), begin + count);
    ProductArgs part = args;
    part.out = slice_columns(slice_rows(args.out, 0, rows), begin, count);
    part.a = part_of(args.a, !args.a_transposed, 0, rows);
    part.b = part_of(args.b, args.b_transposed, begin, count);
    multiply(device, part);
  }
}

}  // namespace bl::cuda
