#pragma once
#include <memory>

#include "convert/host_threads.h"
#include "ops/backend.h"
#include "ops/fitting.h"

namespace bl {

// The matrices of conversion and what is computed with them, where the backend computes: by its own
// FittingOps, or by those for host memory (HostFitting). All matrices are F32 and, unless said
// otherwise, in the memory of the backend.
class Products {
 public:
  // `backend` must outlive this and every matrix.
  explicit Products(Backend& backend);
  ~Products();

  Backend& backend() { return backend_; }
  FittingOps& ops() { return *ops_; }

  Tensor matrix(const Shape& shape);  // uninitialised
  Tensor zeros(std::int64_t rows, std::int64_t columns);
  Tensor copy(const TensorView& from);
  Tensor transposed(const TensorView& from);
  // A copy of a matrix in host memory, and one in host memory.
  Tensor from_host(const TensorView& from);
  Tensor to_host(const TensorView& from);

  // A copy of rows for a later pass. It may lie in host memory: only fetch() and gathered() read
  // it.
  Tensor keep(const TensorView& rows);
  // Kept rows, in the backend's memory: a view of them where they are there already.
  Tensor fetch(const Tensor& kept);
  // Calls body(rows) with kept rows that it changes, and keeps what it leaves.
  template <class F>
  void update(const Tensor& kept, const F& body) {
    const Tensor rows = fetch(kept);
    body(rows.view());
    if (rows.view().data != kept.view().data) ops_->copy(kept.view(), rows.view());
  }
  // A matrix of single rows, each a view of one row of what keep() gave.
  Tensor gathered(std::span<const TensorView> rows);

  // out [m, n] += multiplier · a [m, k] · b [n, k]ᵀ. Rows of `out` and `a` may be strided.
  void add(const TensorView& out, const TensorView& a, const TensorView& b,
           float multiplier = 1.0f) {
    ops_->add_product({.out = out, .a = a, .b = b, .b_transposed = true, .multiplier = multiplier});
  }
  // a [m, k] · b [k, n].
  Tensor product(const TensorView& a, const TensorView& b);
  // out [m, n] += aᵀ · b for a [tokens, m] and b [tokens, n], whose rows may be strided.
  void add_outer(const TensorView& out, const TensorView& a, const TensorView& b) {
    ops_->add_product({.out = out, .a = a, .b = b, .a_transposed = true});
  }
  // The upper triangle of out [n, n] += xᵀ · x for x [tokens, n]; of the lower one, nothing that is
  // known.
  void add_upper_gram(const TensorView& out, const TensorView& x) {
    ops_->add_product({.out = out, .a = x, .b = x, .a_transposed = true, .upper = true});
  }
  // output.out [rows, out] = x [rows, in] · output.weight + output.bias.
  void apply(const MatmulOutput& output, const TensorView& x);
  // For work in host memory, whatever the backend: its threads, or some that come with the first
  // call.
  HostThreads threads();
  // As the op of that name.
  void activate(const ActivateArgs& args);

 private:
  Tensor tensor_in(Buffer buffer, const Shape& shape);

  Backend& backend_;
  std::unique_ptr<FittingOps> host_;  // where the backend has none
  FittingOps* ops_;
  std::unique_ptr<ThreadPool> pool_;  // where the backend has none
  Arena scratch_;
};

// An F32 matrix of zeros in host memory.
Tensor zero_matrix(std::int64_t rows, std::int64_t columns);
// A contiguous copy of an F32 matrix, both in host memory.
Tensor copy_of(const TensorView& from);

}  // namespace bl
