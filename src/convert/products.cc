#include "convert/products.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "convert/host_fitting.h"

namespace bl {
namespace {

std::size_t bytes_of(const Shape& shape) {
  return static_cast<std::size_t>(shape.elements()) * sizeof(float);
}

}  // namespace

Products::Products(Backend& backend) : backend_(backend), ops_(backend.fitting()) {
  if (ops_ != nullptr) return;
  host_ = std::make_unique<HostFitting>(backend);
  ops_ = host_.get();
}

Products::~Products() = default;

HostThreads Products::threads() {
  constexpr int kMostThreads = 16;  // more would wait for the memory
  if (backend_.threads() != nullptr) return HostThreads(backend_.threads());
  if (pool_ == nullptr) {
    pool_ = std::make_unique<ThreadPool>(std::min(kMostThreads, physical_cores()));
  }
  return HostThreads(pool_.get());
}

Tensor Products::tensor_in(Buffer buffer, const Shape& shape) {
  return {std::move(buffer), DType::kF32, shape};
}

Tensor Products::matrix(const Shape& shape) {
  return tensor_in(ops_->allocate(bytes_of(shape)), shape);
}

Tensor Products::zeros(std::int64_t rows, std::int64_t columns) {
  Tensor result = matrix({rows, columns});
  ops_->clear(result.view());
  return result;
}

Tensor Products::copy(const TensorView& from) {
  Tensor result = matrix(from.shape);
  ops_->copy(result.view(), from);
  return result;
}

Tensor Products::transposed(const TensorView& from) {
  Tensor result = matrix({from.columns(), from.rows()});
  ops_->transpose(result.view(), from);
  return result;
}

Tensor Products::from_host(const TensorView& from) {
  Tensor result = matrix(from.shape);
  backend_.upload(result.view(), from);
  return result;
}

Tensor Products::to_host(const TensorView& from) {
  Tensor result = make_host_tensor(DType::kF32, from.shape);
  backend_.download(result.view(), from);
  return result;
}

Tensor Products::keep(const TensorView& rows) {
  Tensor result = tensor_in(ops_->allocate_rows(bytes_of(rows.shape)), rows.shape);
  ops_->copy(result.view(), rows);
  return result;
}

Tensor Products::fetch(const Tensor& kept) {
  const TensorView& view = kept.view();
  if (!ops_->is_near(view)) return copy(view);
  return tensor_in(Buffer(std::shared_ptr<void>(), view.data, bytes_of(view.shape)), view.shape);
}

Tensor Products::gathered(std::span<const TensorView> rows) {
  BL_CHECK(!rows.empty());
  Tensor result = matrix({std::ssize(rows), rows.front().columns()});
  ops_->gather(result.view(), rows);
  return result;
}

Tensor Products::product(const TensorView& a, const TensorView& b) {
  Tensor result = zeros(a.rows(), b.columns());
  ops_->add_product({.out = result.view(), .a = a, .b = b});
  return result;
}

void Products::apply(const MatmulOutput& output, const TensorView& x) {
  const std::size_t bytes = backend_.scratch_bytes({.tokens = x.rows(),
                                                    .max_in = x.columns(),
                                                    .max_slots = x.columns(),
                                                    .max_out = output.weight->out()});
  if (scratch_.capacity() < bytes) scratch_ = Arena(backend_.allocate(bytes));
  ArenaScope scope(scratch_);
  ExecContext ctx = backend_.context(scratch_);
  ctx.ops->matmul(ctx, {.x = x, .outputs = {&output, 1}});
  backend_.synchronize();
}

void Products::activate(const ActivateArgs& args) {
  ExecContext ctx = backend_.context(scratch_);
  ctx.ops->activate(ctx, args);
  backend_.synchronize();
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

}  // namespace bl
