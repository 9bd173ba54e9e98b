#include "convert/products.h"

#include <cstring>

#include "base/check.h"

namespace bl {

Products::Products(Backend& backend) : backend_(backend) { BL_CHECK(backend.reads_host_memory()); }

void Products::add(const TensorView& out, const TensorView& a, const TensorView& b,
                   float multiplier) {
  BL_CHECK(a.columns() == b.columns() && out.rows() == a.rows() && out.columns() == b.rows());
  DenseMatrix dense;
  dense.weight.view = b;
  const std::unique_ptr<PackedMatrix> weight = backend_.pack(dense, {});
  ArenaScope scope(scratch_for(a, b.rows()));
  ExecContext ctx = backend_.context(scratch_);
  const MatmulOutput output{weight.get(), out, {}};
  ctx.ops->matmul(ctx, {.x = a,
                        .outputs = {&output, 1},
                        .epilogue = {.multiplier = multiplier, .accumulate = true}});
  backend_.synchronize();
}

void Products::add_outer(const TensorView& out, const TensorView& a, const TensorView& b) {
  add_outer_sum({.a = a.as<const float>(),
                 .a_stride = a.row_stride,
                 .b = b.as<const float>(),
                 .b_stride = b.row_stride,
                 .out = out.as<float>(),
                 .out_stride = out.row_stride,
                 .tokens = a.rows(),
                 .rows = a.columns(),
                 .columns = b.columns()});
}

void Products::add_upper_gram(const TensorView& out, const TensorView& x) {
  add_outer_sum({.a = x.as<const float>(),
                 .a_stride = x.row_stride,
                 .b = x.as<const float>(),
                 .b_stride = x.row_stride,
                 .out = out.as<float>(),
                 .out_stride = out.row_stride,
                 .tokens = x.rows(),
                 .rows = x.columns(),
                 .columns = x.columns(),
                 .upper = true});
}

void Products::add_outer_sum(const OuterSum& sum) {
  const FittingKernels& kernels = fitting_kernels();
  parallel(sum.columns, kOuterColumns, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> panel(kOuterTokens * kOuterColumns);
    for (; begin < end; begin += kOuterColumns) kernels.add_outer(sum, begin, panel.data());
  });
}

void Products::apply(const MatmulOutput& output, const TensorView& x) {
  ArenaScope scope(scratch_for(x, output.weight->out()));
  ExecContext ctx = backend_.context(scratch_);
  ctx.ops->matmul(ctx, {.x = x, .outputs = {&output, 1}});
  backend_.synchronize();
}

void Products::activate(const ActivateArgs& args) {
  ExecContext ctx = backend_.context(scratch_);
  ctx.ops->activate(ctx, args);
  backend_.synchronize();
}

Arena& Products::scratch_for(const TensorView& x, std::int64_t out) {
  const std::size_t bytes = backend_.scratch_bytes(
      {.tokens = x.rows(), .max_in = x.columns(), .max_slots = x.columns(), .max_out = out});
  if (scratch_.capacity() < bytes) scratch_ = Arena(backend_.allocate(bytes));
  return scratch_;
}

Tensor zero_matrix(std::int64_t rows, std::int64_t columns) {
  Tensor result = make_host_tensor(DType::kF32, {rows, columns});
  std::memset(result.view().data, 0, static_cast<std::size_t>(rows * columns) * sizeof(float));
  return result;
}

Tensor copy_of(const TensorView& from) {
  Tensor to = make_host_tensor(DType::kF32, {from.rows(), from.columns()});
  for (std::int64_t r = 0; r < from.rows(); ++r) {
    std::copy_n(from.row<const float>(r), from.columns(), to.view().row<float>(r));
  }
  return to;
}

Tensor transposed(Products& products, const TensorView& from) {
  constexpr std::int64_t kTile = 32;
  const std::int64_t rows = from.rows(), columns = from.columns();
  Tensor result = make_host_tensor(DType::kF32, {columns, rows});
  products.parallel(columns, kTile, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
      for (std::int64_t c = begin; c < end; ++c) {
        float* to = result.view().row<float>(c);
        for (std::int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) {
          to[r] = from.row<const float>(r)[c];
        }
      }
    }
  });
  return result;
}

}  // namespace bl
