#pragma once
#include <algorithm>

#include "base/thread_pool.h"
#include "convert/fitting_kernels.h"
#include "ops/backend.h"

namespace bl {

// The GEMMs of conversion, computed by a backend's `matmul`, so that each backend brings its own
// kernels; sums over tokens, which need no copy that is transposed, by kernels of this folder. All
// matrices are F32 in host memory.
class Products {
 public:
  // `backend` must outlive this and read host memory.
  explicit Products(Backend& backend);

  // out [m, n] += multiplier · a [m, k] · b [n, k]ᵀ. Rows of `out` and `a` may be strided; `b` is
  // contiguous. Sums do not depend on the number of threads.
  void add(const TensorView& out, const TensorView& a, const TensorView& b,
           float multiplier = 1.0f);

  // out [m, n] += aᵀ · b for a [tokens, m] and b [tokens, n], whose rows may be strided.
  void add_outer(const TensorView& out, const TensorView& a, const TensorView& b);
  // The upper triangle of out [n, n] += xᵀ · x for x [tokens, n]; of the lower one, nothing that is
  // known.
  void add_upper_gram(const TensorView& out, const TensorView& x);
  // output.out [rows, out] = x [rows, in] · output.weight + output.bias.
  void apply(const MatmulOutput& output, const TensorView& x);
  // As the op of that name.
  void activate(const ActivateArgs& args);

  // Runs body(begin, end) over [0, count) in pieces of `grain` on the backend's threads.
  template <class F>
  void parallel(std::int64_t count, std::int64_t grain, const F& body) {
    if (ThreadPool* threads = backend_.threads()) {
      threads->parallel_for(static_cast<long>(count), static_cast<long>(grain), body);
    } else {
      for (std::int64_t i = 0; i < count; i += grain) body(i, std::min(count, i + grain));
    }
  }
  Backend& backend() { return backend_; }

 private:
  void add_outer_sum(const OuterSum& sum);
  Arena& scratch_for(const TensorView& x, std::int64_t out);

  Backend& backend_;
  Arena scratch_;
};

// An F32 matrix of zeros in host memory.
Tensor zero_matrix(std::int64_t rows, std::int64_t columns);
// A contiguous copy of an F32 matrix.
Tensor copy_of(const TensorView& from);
// from [rows, columns] transposed; rows may be strided.
Tensor transposed(Products& products, const TensorView& from);

}  // namespace bl
