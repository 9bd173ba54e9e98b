#include "backend/cuda/fitting/factor.h"

#include <algorithm>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/fitting/factor_size.h"
#include "backend/cuda/gemm/gemm_state.h"

namespace bl::cuda {
namespace {

constexpr int kBlock = kFactorBlock;
constexpr int kThreads = 256;

// An element of H in the order of slots.
struct Hessian {
  Rows<const float> sum;
  const std::int32_t* perm;
  double tokens;
  double damping;
  __device__ double at(std::int64_t i, std::int64_t j) const {
    const std::int32_t a = perm[i], b = perm[j];
    return sum[min(a, b)][max(a, b)] / tokens + (i == j ? damping : 0.0);
  }
};

struct StoreHessian {
  Hessian h;
  Rows<float> to;
  __device__ void operator()(std::int64_t i, std::int64_t j) const {
    to[i][j] = static_cast<float>(h.at(i, j));
  }
};

// The lower triangle of H with both orders reversed; zero above.
struct StoreReversed {
  Hessian h;
  double* to;
  std::int64_t n;
  __device__ void operator()(std::int64_t i, std::int64_t j) const {
    to[i * n + j] = j <= i ? h.at(n - 1 - i, n - 1 - j) : 0.0;
  }
};

// Uᵀ from the inverse of the factor.
struct StoreUTransposed {
  const double* inverse;
  Rows<float> to;
  float* importance;
  std::int64_t n;
  __device__ void operator()(std::int64_t j, std::int64_t k) const {
    const float value = k <= j ? static_cast<float>(inverse[(n - 1 - k) * n + n - 1 - j]) : 0.0f;
    to[j][k] = value;
    if (j == k) importance[j] = 1.0f / (value * value);
  }
};

// A block of a lower triangle, which takes in the inverse of its Cholesky factor.
struct DiagonalBlock {
  double* block;  // its first element; rows lie n apart
  std::int64_t n;
  int width;    // up to kBlock
  int* failed;  // becomes 1 where a pivot is not positive
};

// Replaces the lower triangle in shared memory by its Cholesky factor. Returns false where a pivot
// is not positive; the factor is then of no use.
__device__ bool factor_block(double (*l)[kBlock + 1], int width) {
  bool good = true;
  for (int j = 0; j < width; ++j) {
    const double pivot = l[j][j];
    good = good && pivot > 0.0;
    const double root = sqrt(pivot > 0.0 ? pivot : 1.0);
    __syncthreads();
    for (int i = j + static_cast<int>(threadIdx.x); i < width; i += kThreads) {
      l[i][j] = i == j ? root : l[i][j] / root;
    }
    __syncthreads();
    for (int index = static_cast<int>(threadIdx.x); index < width * width; index += kThreads) {
      const int i = index / width, k = index % width;
      if (k > j && k <= i) l[i][k] -= l[i][j] * l[k][j];
    }
    __syncthreads();
  }
  return good;
}

// A thread inverts a column.
__device__ void invert_block(const double (*l)[kBlock + 1], double (*inverse)[kBlock], int width) {
  const int c = static_cast<int>(threadIdx.x);
  if (c >= kBlock) return;
  for (int i = 0; i < kBlock; ++i) {
    double value = 0.0;
    if (i >= c && i < width) {
      value = i == c ? 1.0 : 0.0;
      for (int k = c; k < i; ++k) value -= l[i][k] * inverse[k][c];
      value /= l[i][i];
    }
    inverse[i][c] = value;
  }
}

__global__ void __launch_bounds__(kThreads) diagonal_block_kernel(DiagonalBlock block) {
  __shared__ double l[kBlock][kBlock + 1];
  __shared__ double inverse[kBlock][kBlock];
  pdl_trigger();
  pdl_wait();
  for (int index = static_cast<int>(threadIdx.x); index < block.width * block.width;
       index += kThreads) {
    const int i = index / block.width, j = index % block.width;
    l[i][j] = block.block[i * block.n + j];
  }
  __syncthreads();
  const bool good = factor_block(l, block.width);
  if (!good && threadIdx.x == 0) *block.failed = 1;
  invert_block(l, inverse, block.width);
  __syncthreads();
  for (int index = static_cast<int>(threadIdx.x); index < block.width * block.width;
       index += kThreads) {
    const int i = index / block.width, j = index % block.width;
    block.block[i * block.n + j] = inverse[i][j];  // also the zeros above the diagonal
  }
}

// A part of a matrix of doubles on the card; rows lie `stride` elements apart.
struct Part {
  double* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  Part row_range(std::int64_t first, std::int64_t count) const {
    return {data + first * stride, count, columns, stride};
  }
  Part column_range(std::int64_t first, std::int64_t count) const {
    return {data + first, rows, count, stride};
  }
};

// A lower triangle of n x n doubles, which becomes the inverse of its Cholesky factor.
//
// Halves are handled one after the other. With the triangle [A, 0; B, C] and X = L⁻¹ of A, the
// panel below A is L₂₁ = B · Xᵀ, C − L₂₁ · L₂₁ᵀ is left of C, and with Y, the inverse of the factor
// of that, the inverse is [X, 0; −Y · L₂₁ · X, Y]. Nearly all of it is large products.
class Triangle {
 public:
  Triangle(FittingDevice& device, std::int64_t n)
      : device_(device),
        n_(n),
        a_(device.take_array<double>(n * n)),
        stripe_(device.take_array<double>(kFactorStripe * n)),
        failed_(device.take_array<int>(1)) {}

  double* data() { return a_.get(); }

  // Returns false where a pivot is not positive; the triangle is then of no use. What is above the
  // diagonal becomes zero.
  bool factor_and_invert() {
    BL_CUDA_CHECK(cudaMemsetAsync(failed_.get(), 0, sizeof(int), device_.stream()));
    invert_range(0, n_);
    int failed = 0;
    device_.download(&failed, failed_.get(), sizeof failed);
    return failed == 0;
  }

 private:
  Part part(std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
    return {a_.get() + row * n_ + column, rows, columns, n_};
  }

  // c = alpha · a · op(b) + beta · c.
  struct Product {
    Part c;
    Part a;
    Part b;
    bool b_transposed = false;
    double alpha = 1.0;
    double beta = 0.0;
  };
  void multiply(const Product& p) {
    gemm_state(device_.context())
        .blas.run({.x = p.a.data,
                   .w = p.b.data,
                   .out = p.c.data,
                   .tokens = p.c.rows,
                   .columns = p.c.columns,
                   .in = p.a.columns,
                   .out_stride = p.c.stride,
                   .out_scale = &p.alpha,
                   .beta = &p.beta,
                   .host_scales = true,
                   .f64 = true,
                   .x_stride = p.a.stride,
                   .w_stride = p.b.stride,
                   .w_transposed = !p.b_transposed},
                  device_.stream());
  }

  // Calls step(first, count) for the stripes of `length` rows or columns.
  template <class Step>
  static void each_stripe(std::int64_t length, const Step& step) {
    for (std::int64_t first = 0; first < length; first += kFactorStripe) {
      step(first, std::min<std::int64_t>(kFactorStripe, length - first));
    }
  }
  template <class Step>
  static void each_stripe_backwards(std::int64_t length, const Step& step) {
    for (std::int64_t end = length; end > 0;) {
      const std::int64_t first = (end - 1) / kFactorStripe * kFactorStripe;
      step(first, end - first);
      end = first;
    }
  }

  Part stripe(std::int64_t rows, std::int64_t columns) {
    return {stripe_.get(), rows, columns, columns};
  }
  void copy(const Part& to, const Part& from) {
    const auto bytes = [](std::int64_t count) {
      return static_cast<std::size_t>(count) * sizeof(double);
    };
    BL_CUDA_CHECK(cudaMemcpy2DAsync(to.data, bytes(to.stride), from.data, bytes(from.stride),
                                    bytes(to.columns), static_cast<std::size_t>(to.rows),
                                    cudaMemcpyDeviceToDevice, device_.stream()));
  }
  void clear(const Part& to) {
    const std::size_t width = static_cast<std::size_t>(to.columns) * sizeof(double);
    const std::size_t pitch = static_cast<std::size_t>(to.stride) * sizeof(double);
    BL_CUDA_CHECK(cudaMemset2DAsync(to.data, pitch, 0, width, static_cast<std::size_t>(to.rows),
                                    device_.stream()));
  }

  // b = b · xᵀ for a lower triangle x. Columns of the result need those of b up to their own.
  void multiply_by_transposed(const Part& b, const Part& x) {
    each_stripe_backwards(x.rows, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t end = first + count;
      const Part product = stripe(b.rows, count);
      multiply({.c = product,
                .a = b.column_range(0, end),
                .b = x.row_range(first, count).column_range(0, end),
                .b_transposed = true});
      copy(b.column_range(first, count), product);
    });
  }

  // b = b · x for a lower triangle x. Columns of the result need those of b from their own on.
  void multiply_by(const Part& b, const Part& x) {
    each_stripe(x.rows, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t left = x.rows - first;
      const Part product = stripe(b.rows, count);
      multiply({.c = product,
                .a = b.column_range(first, left),
                .b = x.row_range(first, left).column_range(first, count)});
      copy(b.column_range(first, count), product);
    });
  }

  // b = −y · b for a lower triangle y. Rows of the result need those of b up to their own.
  void multiply_from_left(const Part& b, const Part& y) {
    each_stripe_backwards(y.rows, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t end = first + count;
      const Part product = stripe(count, b.columns);
      multiply({.c = product,
                .a = y.row_range(first, count).column_range(0, end),
                .b = b.row_range(0, end),
                .alpha = -1.0});
      copy(b.row_range(first, count), product);
    });
  }

  // c −= l · lᵀ on and below the diagonal. Elements above it may be overwritten with values that
  // mean nothing; invert_range() clears them later.
  void subtract_square(const Part& c, const Part& l) {
    each_stripe(c.rows, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t left = c.rows - first;
      multiply({.c = c.row_range(first, left).column_range(first, count),
                .a = l.row_range(first, left),
                .b = l.row_range(first, count),
                .b_transposed = true,
                .alpha = -1.0,
                .beta = 1.0});
    });
  }

  void invert_range(std::int64_t begin, std::int64_t count) {
    if (count <= kBlock) {
      const DiagonalBlock block{part(begin, begin, count, count).data, n_, static_cast<int>(count),
                                failed_.get()};
      launch(shape_of(device_.context(), 1, kThreads), diagonal_block_kernel, block);
      return;
    }
    // The first half is kBlock times a power of two, so that few different sizes of products occur.
    std::int64_t half = kBlock;
    while (2 * half < count) half *= 2;
    const std::int64_t middle = begin + half, left = count - half;
    const Part upper = part(begin, begin, half, half), lower = part(middle, middle, left, left);
    const Part below = part(middle, begin, left, half);
    invert_range(begin, half);
    multiply_by_transposed(below, upper);
    subtract_square(lower, below);
    multiply_by(below, upper);
    invert_range(middle, left);
    multiply_from_left(below, lower);
    clear(part(begin, middle, half, left));
  }

  FittingDevice& device_;
  std::int64_t n_;
  std::shared_ptr<double> a_;
  std::shared_ptr<double> stripe_;  // of a product that takes the place of its factor
  std::shared_ptr<int> failed_;
};

}  // namespace

std::optional<FactoredHessian> factor(FittingDevice& device, const FactorArgs& args) {
  const std::int64_t n = args.sum.rows();
  const std::shared_ptr<std::int32_t> perm = device.uploaded(args.perm);
  const Hessian h{rows_of<const float>(args.sum), perm.get(), args.tokens, args.damping};
  FactoredHessian result;
  {
    Triangle triangle(device, n);
    for_each_element<1>(device.context(), n, n, StoreReversed{h, triangle.data(), n});
    if (!triangle.factor_and_invert()) return std::nullopt;
    result.u_transposed = device.matrix({n, n});
    result.importance = device.matrix({n});
    for_each_element<1>(
        device.context(), n, n,
        StoreUTransposed{triangle.data(), rows_of<float>(result.u_transposed.view()),
                         result.importance.view().as<float>(), n});
  }
  result.h = device.matrix({n, n});  // when the doubles are gone
  for_each_element<1>(device.context(), n, n, StoreHessian{h, rows_of<float>(result.h.view())});
  return result;
}

}  // namespace bl::cuda
