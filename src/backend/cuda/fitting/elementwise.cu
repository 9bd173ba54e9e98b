#include "backend/cuda/fitting/elementwise.h"

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/fitting/row_sums.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

struct AddScaled {
  Rows<float> to;
  Rows<const float> from;
  float factor;
  __device__ void operator()(std::int64_t r, std::int64_t c) const {
    to[r][c] += factor * from[r][c];
  }
};

struct GatherRow {
  Rows<float> to;
  const float* const* rows;
  __device__ void operator()(std::int64_t r, std::int64_t c) const { to[r][c] = rows[r][c]; }
};

struct ScaleRow {
  Rows<float> x;
  const float* factors;
  __device__ void operator()(std::int64_t r, std::int64_t c) const { x[r][c] *= factors[r]; }
};

struct WantedOutput {
  Rows<float> y;
  Rows<const float> out;
  Rows<const float> stream;  // data may be null
  const float* bias;         // may be null
  float inverse;
  __device__ void operator()(std::int64_t r, std::int64_t c) const {
    float value = out[r][c];
    if (stream.data != nullptr) value -= stream[r][c];
    if (bias != nullptr) value -= bias[c];
    y[r][c] = value * inverse;
  }
};

struct CorrectionTarget {
  Rows<float> product;
  Rows<const float> cross;
  Rows<const float> weights;
  const std::int32_t* perm;
  float tokens;
  float damping;
  __device__ void operator()(std::int64_t k, std::int64_t c) const {
    product[k][c] = cross[perm[k]][c] / tokens - product[k][c] + damping * weights[k][c];
  }
};

struct GatherSymmetric {
  Rows<float> to;
  Rows<const float> upper;
  const std::int32_t* perm;
  __device__ void operator()(std::int64_t i, std::int64_t j) const {
    const std::int32_t a = perm[i], b = perm[j];
    to[i][j] = upper[min(a, b)][max(a, b)];
  }
};

template <class T>
struct InSlotOrder {
  Rows<float> out;
  Rows<const T> from;
  const std::int32_t* perm;
  std::int64_t columns;  // of `out` that there are rows for
  __device__ void operator()(std::int64_t k, std::int64_t c) const {
    out[k][c] = c < columns ? float_of(from[c][perm[k]]) : 0.0f;
  }
};

template <class T>
struct Widen {
  Rows<float> to;
  Rows<const T> from;
  __device__ void operator()(std::int64_t r, std::int64_t c) const {
    to[r][c] = float_of(from[r][c]);
  }
};

constexpr int kTurned = 32;      // a side of the square that a CTA transposes
constexpr int kTurnedLines = 8;  // of it at a time

__global__ void __launch_bounds__(kTurned* kTurnedLines)
    transpose_kernel(Rows<float> to, Rows<const float> from, std::int64_t rows,
                     std::int64_t columns) {
  __shared__ float square[kTurned][kTurned + 1];
  pdl_trigger();
  pdl_wait();
  const std::int64_t row = std::int64_t{blockIdx.y} * kTurned;
  const std::int64_t column = std::int64_t{blockIdx.x} * kTurned;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (int line = y; line < kTurned; line += kTurnedLines) {
    if (row + line < rows && column + x < columns) square[line][x] = from[row + line][column + x];
  }
  __syncthreads();
  for (int line = y; line < kTurned; line += kTurnedLines) {
    if (column + line < columns && row + x < rows) to[column + line][row + x] = square[x][line];
  }
}

__global__ void __launch_bounds__(kRowThreads)
    row_dots_kernel(Rows<const float> a, Rows<const float> b, const std::int32_t* perm,
                    std::int64_t columns, double* sums) {
  __shared__ double parts[kRowThreads / 32];
  pdl_trigger();
  pdl_wait();
  const std::int64_t row = blockIdx.x;
  const float* left = a[row];
  const float* right = b[perm != nullptr ? perm[row] : row];
  double sum = 0.0;
#pragma unroll 8
  for (std::int64_t c = threadIdx.x; c < columns; c += kRowThreads) {
    sum += static_cast<double>(left[c]) * right[c];
  }
  sum = cta_sum(sum, parts);
  if (threadIdx.x == 0) sums[row] = sum;
}

__global__ void __launch_bounds__(kRowThreads)
    row_losses_kernel(Rows<const float> values, Rows<const float> wanted,
                      Rows<const float> residual, std::int64_t columns, double* sums) {
  __shared__ double parts[kRowThreads / 32];
  pdl_trigger();
  pdl_wait();
  const std::int64_t row = blockIdx.x;
  double sum = 0.0;
#pragma unroll 8
  for (std::int64_t c = threadIdx.x; c < columns; c += kRowThreads) {
    const float error = values[row][c] - wanted[row][c];
    sum += static_cast<double>(error) * residual[row][c];
  }
  sum = cta_sum(sum, parts);
  if (threadIdx.x == 0) sums[row] = sum;
}

}  // namespace

void transpose(FittingDevice& device, const TensorView& to, const TensorView& from) {
  BL_CHECK(to.rows() == from.columns() && to.columns() == from.rows());
  // Squares above one another are a dimension of the grid, of which there are at most 65535.
  constexpr std::int64_t kMostRows = std::int64_t{65535} * kTurned;
  for (std::int64_t first = 0; first < from.rows(); first += kMostRows) {
    const std::int64_t rows = std::min(kMostRows, from.rows() - first);
    const dim3 grid(static_cast<unsigned>(ceil_div<std::int64_t>(from.columns(), kTurned)),
                    static_cast<unsigned>(ceil_div<std::int64_t>(rows, kTurned)));
    launch(shape_of(device.context(), grid, dim3(kTurned, kTurnedLines)), transpose_kernel,
           rows_of<float>(slice_columns(to, first, rows)),
           rows_of<const float>(slice_rows(from, first, rows)), rows, from.columns());
  }
}

void add_scaled(FittingDevice& device, const TensorView& to, const TensorView& from, float factor) {
  BL_CHECK(to.shape == from.shape);
  for_each_element<1>(device.context(), to.rows(), to.columns(),
                      AddScaled{rows_of<float>(to), rows_of<const float>(from), factor});
}

void gather_rows(FittingDevice& device, const TensorView& to, const float* const* rows) {
  for_each_element<1>(device.context(), to.rows(), to.columns(),
                      GatherRow{rows_of<float>(to), rows});
}

void scale_rows(FittingDevice& device, const TensorView& x, const float* factors) {
  for_each_element<1>(device.context(), x.rows(), x.columns(),
                      ScaleRow{rows_of<float>(x), factors});
}

void wanted_output(FittingDevice& device, const WantedOutputArgs& args) {
  for_each_element<1>(device.context(), args.y.rows(), args.y.columns(),
                      WantedOutput{rows_of<float>(args.y), rows_of<const float>(args.out),
                                   rows_of<const float>(args.stream), args.bias.as<const float>(),
                                   1.0f / args.multiplier});
}

void correction_target(FittingDevice& device, const CorrectionTargetArgs& args,
                       const std::int32_t* perm) {
  for_each_element<1>(
      device.context(), args.weights.rows(), args.cross.columns(),
      CorrectionTarget{rows_of<float>(args.product), rows_of<const float>(args.cross),
                       rows_of<const float>(args.weights), perm, args.tokens, args.damping});
}

void gather_symmetric(FittingDevice& device, const TensorView& to, const TensorView& upper,
                      const std::int32_t* perm) {
  for_each_element<1>(device.context(), to.rows(), to.columns(),
                      GatherSymmetric{rows_of<float>(to), rows_of<const float>(upper), perm});
}

void in_slot_order(FittingDevice& device, const TensorView& out, const TensorView& from,
                   const std::int32_t* perm) {
  visit_float_dtype(from.dtype, [&]<class T>(Tag<T>) {
    for_each_element<1>(
        device.context(), out.rows(), out.columns(),
        InSlotOrder<T>{rows_of<float>(out), rows_of<const T>(from), perm, from.rows()});
  });
}

void widen(FittingDevice& device, const TensorView& to, const TensorView& from) {
  visit_float_dtype(from.dtype, [&]<class T>(Tag<T>) {
    for_each_element<1>(device.context(), to.rows(), to.columns(),
                        Widen<T>{rows_of<float>(to), rows_of<const T>(from)});
  });
}

void row_dots(FittingDevice& device, const TensorView& a, const TensorView& b,
              const std::int32_t* perm, double* sums) {
  BL_CHECK(a.columns() >= b.columns());
  if (a.rows() == 0) return;
  launch(shape_of(device.context(), static_cast<unsigned>(a.rows()), kRowThreads), row_dots_kernel,
         rows_of<const float>(a), rows_of<const float>(b), perm, b.columns(), sums);
}

void row_losses(FittingDevice& device, const TensorView& values, const TensorView& wanted,
                const TensorView& residual, double* sums) {
  launch(shape_of(device.context(), static_cast<unsigned>(values.rows()), kRowThreads),
         row_losses_kernel, rows_of<const float>(values), rows_of<const float>(wanted),
         rows_of<const float>(residual), values.columns(), sums);
}

}  // namespace bl::cuda
