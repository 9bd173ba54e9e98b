#include "backend/cuda/gemm/large/dense_gemv.h"

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/large/plain_gemv_launch.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kWarps = 4;

// The offset of row `token` in x. A kernel for more tokens than there are (kSpare) reads the last
// row again.
template <bool kSpare>
__device__ __forceinline__ std::int64_t row_offset(const PlainGemvLaunch& p, int token) {
  return (kSpare ? min(token, p.tokens - 1) : token) * p.x_stride;
}

// sums += the product over 16 bytes of a weight row.
template <class T, int Tokens, bool kSpare>
__device__ __forceinline__ void multiply_words(const uint4& words, const PlainGemvLaunch& p, int at,
                                               float (&sums)[Tokens]) {
  constexpr int kCount = 16 / sizeof(T);
  const T* w = reinterpret_cast<const T*>(&words);
#pragma unroll
  for (int t = 0; t < Tokens; ++t) {
#pragma unroll
    for (int v = 0; v < kCount; v += 4) {
      const float4 a = *reinterpret_cast<const float4*>(p.x + at + row_offset<kSpare>(p, t) + v);
      sums[t] += float_of(w[v]) * a.x + float_of(w[v + 1]) * a.y + float_of(w[v + 2]) * a.z +
                 float_of(w[v + 3]) * a.w;
    }
  }
}

// One warp a column.
template <class T, int Tokens, bool kSpare>
__global__ void __launch_bounds__(kWarps * 32) dense_gemv_kernel(const T* rows, PlainGemvLaunch p) {
  pdl_trigger();
  pdl_wait();
  const int column = static_cast<int>(blockIdx.x) * kWarps + warp_index();
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
      const uint4 words = __ldcs(reinterpret_cast<const uint4*>(row + i));
      multiply_words<T, Tokens, kSpare>(words, p, i, sums);
    }
  }
  for (int i = done + lane; i < p.in; i += 32) {
    const float w = float_of(row[i]);
#pragma unroll
    for (int t = 0; t < Tokens; ++t) sums[t] += w * p.x[row_offset<kSpare>(p, t) + i];
  }
#pragma unroll
  for (int t = 0; t < Tokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane != 0 || (kSpare && t >= p.tokens)) continue;
    float value = sum * p.multiplier;
    if (p.bias != nullptr) value += p.bias[column];
    float* to = p.out + t * p.out_stride + column;
    *to = p.accumulate ? *to + value : value;
  }
}

// Launches the kernel for `tokens` tokens, trying from Tokens on.
template <int Tokens, class T>
void start_for(const LaunchShape& shape, std::int64_t tokens, const T* rows,
               const PlainGemvLaunch& p) {
  if constexpr (Tokens < kMaxDenseTokens) {
    if (tokens != Tokens) return start_for<Tokens + 1>(shape, tokens, rows, p);
  }
  BL_CHECK(tokens == Tokens);
  launch(shape, dense_gemv_kernel<T, Tokens, false>, rows, p);
}

template <class T>
void start(ExecContext& ctx, const DenseGemvArgs& args) {
  const PlainGemvLaunch p = plain_gemv_launch(args, static_cast<int>(sizeof(T)));
  const LaunchShape shape =
      shape_of(ctx, dim3(static_cast<unsigned>((p.columns + kWarps - 1) / kWarps)), kWarps * 32);
  const T* rows = static_cast<const T*>(args.rows);
  if (ctx.deterministic) {
    launch(shape, dense_gemv_kernel<T, kMaxDenseTokens, true>, rows, p);
  } else {
    start_for<1>(shape, args.x.rows(), rows, p);
  }
}

}  // namespace

void dense_gemv(ExecContext& ctx, const DenseGemvArgs& args) {
  visit_float_dtype(args.type, [&](auto tag) { start<typename decltype(tag)::type>(ctx, args); });
}

}  // namespace bl::cuda
