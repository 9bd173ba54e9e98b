// Products in double: a CTA multiplies a tile of 64 x 64, each of its 256 threads 4 x 4 of them, in
// steps of 16 along K. Double tensor cores exist on data-center cards alone; this runs everywhere,
// and factors of Hessians are a few percent of a conversion.

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/fitting/product_f64.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kTile = kDoubleTile;
constexpr int kStep = 16;
constexpr int kThreads = 256;
constexpr int kOwn = 4;             // rows and columns of a thread
constexpr int kPadded = kTile + 1;  // so that a column of a tile lies in different banks

struct Tiles {
  double a[kStep][kPadded];  // transposed
  double b[kStep][kPadded];
};

// Reads a step of a matrix whose rows run along K, transposed; zero outside.
__device__ __forceinline__ void load_along_k(double (*to)[kPadded], const double* from,
                                             std::int64_t stride, std::int64_t rows,
                                             std::int64_t left) {
#pragma unroll
  for (int i = 0; i < kTile * kStep / kThreads; ++i) {
    const int index = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = index / kStep, k = index % kStep;
    to[k][row] = row < rows && k < left ? from[row * stride + k] : 0.0;
  }
}

// Reads a step of b [k, n]. `first_k`, `first_column`: where it lies in b.
__device__ __forceinline__ void load_across_k(double (*to)[kPadded], const DoubleProduct& p,
                                              std::int64_t first_k, std::int64_t first_column) {
#pragma unroll
  for (int i = 0; i < kTile * kStep / kThreads; ++i) {
    const int index = i * kThreads + static_cast<int>(threadIdx.x);
    const std::int64_t k = first_k + index / kTile, column = first_column + index % kTile;
    const bool inside = k < p.k && column < p.n && !(p.b_lower && k < column);
    to[index / kTile][index % kTile] = inside ? p.b.data[k * p.b.stride + column] : 0.0;
  }
}

__device__ __forceinline__ void multiply_step(const Tiles& tiles, double (&sums)[kOwn][kOwn]) {
  const int row = static_cast<int>(threadIdx.x) / (kTile / kOwn) * kOwn;
  const int column = static_cast<int>(threadIdx.x) % (kTile / kOwn) * kOwn;
#pragma unroll
  for (int k = 0; k < kStep; ++k) {
    double a[kOwn], b[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) a[i] = tiles.a[k][row + i];
#pragma unroll
    for (int j = 0; j < kOwn; ++j) b[j] = tiles.b[k][column + j];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int j = 0; j < kOwn; ++j) sums[i][j] += a[i] * b[j];
    }
  }
}

__device__ __forceinline__ void store_tile(const DoubleProduct& p, std::int64_t first_row,
                                           std::int64_t first_column,
                                           const double (&sums)[kOwn][kOwn]) {
  const std::int64_t row = first_row + threadIdx.x / (kTile / kOwn) * kOwn;
  const std::int64_t column = first_column + threadIdx.x % (kTile / kOwn) * kOwn;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      if (row + i >= p.m || column + j >= p.n) continue;
      double& to = p.c.data[(row + i) * p.c.stride + column + j];
      // A beta of 0 must not keep what is no number.
      to = p.alpha * sums[i][j] + (p.beta == 0.0 ? 0.0 : p.beta * to);
    }
  }
}

__global__ void __launch_bounds__(kThreads) multiply_doubles_kernel(DoubleProduct p) {
  __shared__ Tiles tiles;
  pdl_trigger();
  pdl_wait();
  const std::int64_t row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile;
  if (p.lower && column > row + kTile - 1) return;
  double sums[kOwn][kOwn] = {};
  // Above its diagonal, a lower triangle has nothing for these columns.
  const std::int64_t begin = p.b_lower ? column / kStep * kStep : 0;
  for (std::int64_t k = begin; k < p.k; k += kStep) {
    load_along_k(tiles.a, p.a.data + row * p.a.stride + k, p.a.stride, p.m - row, p.k - k);
    if (p.b_transposed) {
      load_along_k(tiles.b, p.b.data + column * p.b.stride + k, p.b.stride, p.n - column, p.k - k);
    } else {
      load_across_k(tiles.b, p, k, column);
    }
    __syncthreads();
    multiply_step(tiles, sums);
    __syncthreads();
  }
  store_tile(p, row, column, sums);
}

}  // namespace

void multiply(FittingDevice& device, const DoubleProduct& product) {
  BL_CHECK(product.c.data != product.a.data || product.n <= kDoubleTile);
  BL_CHECK(!(product.b_lower && product.b_transposed));
  if (product.m == 0 || product.n == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div<std::int64_t>(product.n, kTile)),
                  static_cast<unsigned>(ceil_div<std::int64_t>(product.m, kTile)));
  launch(shape_of(device.context(), grid, kThreads), multiply_doubles_kernel, product);
}

}  // namespace bl::cuda
