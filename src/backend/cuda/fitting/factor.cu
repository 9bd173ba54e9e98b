#include "backend/cuda/fitting/factor.h"

#include <algorithm>

#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/fitting/factor_size.h"
#include "backend/cuda/fitting/product_f64.h"

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

struct DiagonalBlock {
  double* block;  // its first element; rows lie n apart
  std::int64_t n;
  int width;        // up to kBlock
  double* inverse;  // [kBlock, kBlock], zero above the diagonal and outside
  int* failed;      // becomes 1 where a pivot is not positive
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
    if (j <= i) block.block[i * block.n + j] = l[i][j];
  }
  for (int index = static_cast<int>(threadIdx.x); index < kBlock * kBlock; index += kThreads) {
    block.inverse[index] = inverse[index / kBlock][index % kBlock];
  }
}

struct CopyBlock {
  double* to;
  std::int64_t n;
  const double* inverse;
  __device__ void operator()(std::int64_t i, std::int64_t j) const {
    to[i * n + j] = inverse[i * kBlock + j];
  }
};

// A lower triangle of n x n doubles, and the inverses of its diagonal blocks.
class Triangle {
 public:
  Triangle(FittingDevice& device, std::int64_t n)
      : device_(device),
        n_(n),
        a_(device.take_array<double>(n * n)),
        inverses_(device.take_array<double>(factor_blocks(n) * kBlock * kBlock)),
        stripe_(device.take_array<double>(kBlock * n)),
        failed_(device.take_array<int>(1)) {}

  double* data() { return a_.get(); }

  // Replaces it by its Cholesky factor; false where a pivot is not positive.
  bool factor() {
    BL_CUDA_CHECK(cudaMemsetAsync(failed_.get(), 0, sizeof(int), device_.stream()));
    for (std::int64_t begin = 0; begin < n_; begin += kBlock) factor_columns(begin);
    int failed = 0;
    device_.download(&failed, failed_.get(), sizeof failed);
    return failed == 0;
  }

  // Replaces the factor by its inverse. What is above the diagonal holds nothing.
  void invert() {
    for (std::int64_t begin = 0; begin < n_; begin += kBlock) invert_rows(begin);
  }

 private:
  DoubleRows at(std::int64_t row, std::int64_t column) {
    return {a_.get() + row * n_ + column, n_};
  }
  DoubleRows inverse_of(std::int64_t begin) {
    return {inverses_.get() + begin / kBlock * (kBlock * kBlock), kBlock};
  }
  std::int64_t width_of(std::int64_t begin) const {
    return std::min<std::int64_t>(kBlock, n_ - begin);
  }

  // Factors the diagonal block, solves for the panel below it and subtracts what the panel adds to
  // the triangle behind.
  void factor_columns(std::int64_t begin) {
    const std::int64_t width = width_of(begin), below = n_ - begin - width;
    const DiagonalBlock block{at(begin, begin).data, n_, static_cast<int>(width),
                              inverse_of(begin).data, failed_.get()};
    launch(shape_of(device_.context(), 1, kThreads), diagonal_block_kernel, block);
    if (below == 0) return;
    const DoubleRows panel = at(begin + width, begin);
    multiply(device_, {.c = panel,
                       .a = panel,
                       .b = inverse_of(begin),
                       .m = below,
                       .n = width,
                       .k = width,
                       .b_transposed = true});
    multiply(device_, {.c = at(begin + width, begin + width),
                       .a = panel,
                       .b = panel,
                       .m = below,
                       .n = below,
                       .k = width,
                       .alpha = -1.0,
                       .beta = 1.0,
                       .b_transposed = true,
                       .lower = true});
  }

  // Rows of the inverse X from those above: X_i = −L_ii⁻¹ · (L_i · X), and L_ii⁻¹ on the diagonal.
  void invert_rows(std::int64_t begin) {
    const std::int64_t width = width_of(begin);
    const DoubleRows stripe{stripe_.get(), n_};
    multiply(device_, {.c = stripe,
                       .a = at(begin, 0),
                       .b = at(0, 0),
                       .m = width,
                       .n = begin,
                       .k = begin,
                       .b_lower = true});
    multiply(device_, {.c = at(begin, 0),
                       .a = inverse_of(begin),
                       .b = stripe,
                       .m = width,
                       .n = begin,
                       .k = width,
                       .alpha = -1.0});
    for_each_element<1>(device_.context(), width, width,
                        CopyBlock{at(begin, begin).data, n_, inverse_of(begin).data});
  }

  FittingDevice& device_;
  std::int64_t n_;
  std::shared_ptr<double> a_;
  std::shared_ptr<double> inverses_;
  std::shared_ptr<double> stripe_;  // [kBlock, n]
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
    if (!triangle.factor()) return std::nullopt;
    triangle.invert();
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
