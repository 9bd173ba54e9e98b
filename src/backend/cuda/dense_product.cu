#include "backend/cuda/dense_product.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/warp_reduce.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kWarps = 4;

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

struct DenseLaunch {
  const float* x;
  std::int64_t x_stride;
  int in;
  float* out;
  std::int64_t out_stride;
  int columns;
  const float* bias;
  float multiplier;
  bool accumulate;
  bool aligned;  // rows and x start at multiples of 16 bytes
};

// Σ over one 16-byte piece of a weight row.
template <class T, int Tokens>
__device__ __forceinline__ void multiply_piece(const uint4& piece, const float* x,
                                               std::int64_t x_stride, float (&sums)[Tokens]) {
  constexpr int kCount = 16 / sizeof(T);
  const T* w = reinterpret_cast<const T*>(&piece);
#pragma unroll
  for (int t = 0; t < Tokens; ++t) {
#pragma unroll
    for (int v = 0; v < kCount; v += 4) {
      const float4 a = *reinterpret_cast<const float4*>(x + t * x_stride + v);
      sums[t] += to_float(w[v]) * a.x + to_float(w[v + 1]) * a.y + to_float(w[v + 2]) * a.z +
                 to_float(w[v + 3]) * a.w;
    }
  }
}

// A warp a column.
template <class T, int Tokens>
__global__ void __launch_bounds__(kWarps * 32) dense_product_kernel(const T* rows, DenseLaunch p) {
  allow_next();
  dependency_wait();
  const int column = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (column >= p.columns) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const T* row = rows + static_cast<std::int64_t>(column) * p.in;
  float sums[Tokens] = {};
  int done = 0;
  if (p.aligned) {
    constexpr int kCount = 16 / sizeof(T);
    constexpr int kStep = 32 * kCount;
    done = p.in / kStep * kStep;
#pragma unroll 4
    for (int i = lane * kCount; i < done; i += kStep) {
      const uint4 piece = __ldg(reinterpret_cast<const uint4*>(row + i));
      multiply_piece<T>(piece, p.x + i, p.x_stride, sums);
    }
  }
  for (int i = done + lane; i < p.in; i += 32) {
    const float w = to_float(row[i]);
#pragma unroll
    for (int t = 0; t < Tokens; ++t) sums[t] += w * p.x[t * p.x_stride + i];
  }
#pragma unroll
  for (int t = 0; t < Tokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane != 0) continue;
    float value = sum * p.multiplier;
    if (p.bias != nullptr) value += p.bias[column];
    float* to = p.out + t * p.out_stride + column;
    *to = p.accumulate ? *to + value : value;
  }
}

template <class T>
void start(ExecContext& ctx, const DenseProductArgs& args) {
  const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  DenseLaunch p{args.x.as<const float>(),
                args.x.row_stride,
                static_cast<int>(args.x.columns()),
                args.out.as<float>(),
                args.out.row_stride,
                static_cast<int>(args.out.columns()),
                args.bias,
                args.multiplier,
                args.accumulate,
                false};
  p.aligned = address(args.rows) % 16 == 0 && address(p.x) % 16 == 0 && p.x_stride % 4 == 0 &&
              p.in % (16 / static_cast<int>(sizeof(T))) == 0;
  const LaunchShape shape =
      shape_of(ctx, dim3(static_cast<unsigned>((p.columns + kWarps - 1) / kWarps)), kWarps * 32);
  const T* rows = static_cast<const T*>(args.rows);
  switch (args.x.rows()) {
    case 1:
      launch(shape, dense_product_kernel<T, 1>, rows, p);
      break;
    case 2:
      launch(shape, dense_product_kernel<T, 2>, rows, p);
      break;
    case 3:
      launch(shape, dense_product_kernel<T, 3>, rows, p);
      break;
    case 4:
      launch(shape, dense_product_kernel<T, 4>, rows, p);
      break;
    case 5:
      launch(shape, dense_product_kernel<T, 5>, rows, p);
      break;
    case 6:
      launch(shape, dense_product_kernel<T, 6>, rows, p);
      break;
    case 7:
      launch(shape, dense_product_kernel<T, 7>, rows, p);
      break;
    default:
      BL_CHECK(args.x.rows() == kMaxDenseTokens);
      launch(shape, dense_product_kernel<T, 8>, rows, p);
  }
}

}  // namespace

void dense_product(ExecContext& ctx, const DenseProductArgs& args) {
  switch (args.type) {
    case DType::kF16:
      start<__half>(ctx, args);
      break;
    case DType::kBF16:
      start<__nv_bfloat16>(ctx, args);
      break;
    default:
      BL_CHECK(args.type == DType::kF32);
      start<float>(ctx, args);
  }
}

}  // namespace bl::cuda
