#include "backend/cuda/gemm/large/narrow_gemv.h"

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/large/plain_gemv_launch.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kColumns = 4;

// A thread's sums of the CTA's columns and tokens. Columns and tokens beyond the last one repeat
// it, and their sums are not used.
template <class T, int Tokens>
class NarrowSums {
 public:
  __device__ __forceinline__ NarrowSums(const T* rows, const PlainGemvLaunch& p, int first_token)
      : in_(p.in) {
    const int first = static_cast<int>(blockIdx.x) * kColumns;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      rows_[c] = rows + static_cast<std::int64_t>(min(first + c, p.columns - 1)) * p.in;
    }
#pragma unroll
    for (int t = 0; t < Tokens; ++t) x_[t] = p.x + min(first_token + t, p.tokens - 1) * p.x_stride;
  }

  // Loads the first weights of this thread. No kernel writes them, so this need not wait.
  __device__ __forceinline__ void start(bool aligned) {
    const int at = static_cast<int>(threadIdx.x) * kCount;
    if (aligned && at + kCount <= in_) load(at);
  }

  // Adds this thread's share of K, of which start() has loaded the beginning.
  __device__ __forceinline__ void add(bool aligned) {
    constexpr int kStep = kWarps * 32 * kCount;
    const auto thread = static_cast<int>(threadIdx.x);
    int done = 0;
    if (aligned) {
      done = in_ / kCount * kCount;
      for (int i = thread * kCount; i < done; i += kStep) {
        if (i >= kStep) load(i);
        add_words(i);
      }
    }
    for (int i = done + thread; i < in_; i += kWarps * 32) {
#pragma unroll
      for (int t = 0; t < Tokens; ++t)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sums_[t][c] += float_of(rows_[c][i]) * x_[t][i];
    }
  }

  // Stores the sums of this warp's lanes.
  __device__ __forceinline__ void store(float (&to)[Tokens][kColumns]) const {
#pragma unroll
    for (int t = 0; t < Tokens; ++t)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float sum = warp_sum(sums_[t][c]);
        if (lane_index() == 0) to[t][c] = sum;
      }
  }

 private:
  static constexpr int kCount = 16 / sizeof(T);  // weights of a load

  __device__ __forceinline__ void load(int at) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      words_[c] = __ldg(reinterpret_cast<const uint4*>(rows_[c] + at));
  }
  __device__ __forceinline__ void add_words(int at) {
#pragma unroll
    for (int t = 0; t < Tokens; ++t)
#pragma unroll
      for (int v = 0; v < kCount; v += 4) {
        const float4 x = *reinterpret_cast<const float4*>(x_[t] + at + v);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const T* w = reinterpret_cast<const T*>(&words_[c]) + v;
          sums_[t][c] += float_of(w[0]) * x.x + float_of(w[1]) * x.y + float_of(w[2]) * x.z +
                         float_of(w[3]) * x.w;
        }
      }
  }

  const T* rows_[kColumns];
  const float* x_[Tokens];
  int in_;
  uint4 words_[kColumns];
  float sums_[Tokens][kColumns] = {};
};

// grid (groups of kColumns columns, groups of Tokens tokens)
template <class T, int Tokens>
__global__ void __launch_bounds__(kWarps * 32)
    narrow_gemv_kernel(const T* rows, PlainGemvLaunch p) {
  __shared__ float parts[kWarps][Tokens][kColumns];
  pdl_trigger();
  const int first_token = static_cast<int>(blockIdx.y) * Tokens;
  NarrowSums<T, Tokens> sums(rows, p, first_token);
  sums.start(p.aligned);
  pdl_wait();
  sums.add(p.aligned);
  sums.store(parts[warp_index()]);
  __syncthreads();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= Tokens * kColumns) return;
  const int token = first_token + thread / kColumns;
  const int column = static_cast<int>(blockIdx.x) * kColumns + thread % kColumns;
  if (token >= p.tokens || column >= p.columns) return;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += parts[w][thread / kColumns][thread % kColumns];
  float value = sum * p.multiplier;
  if (p.bias != nullptr) value += p.bias[column];
  float* to = p.out + token * p.out_stride + column;
  *to = p.accumulate ? *to + value : value;
}

template <class T, int Tokens>
void start_for(ExecContext& ctx, const T* rows, const PlainGemvLaunch& p) {
  const dim3 grid(static_cast<unsigned>((p.columns + kColumns - 1) / kColumns),
                  static_cast<unsigned>((p.tokens + Tokens - 1) / Tokens));
  launch(shape_of(ctx, grid, kWarps * 32), narrow_gemv_kernel<T, Tokens>, rows, p);
}

template <class T>
void start(ExecContext& ctx, const DenseGemvArgs& args) {
  const PlainGemvLaunch p = plain_gemv_launch(args, static_cast<int>(sizeof(T)));
  const T* rows = static_cast<const T*>(args.rows);
  if (ctx.deterministic || p.tokens > 4) return start_for<T, 8>(ctx, rows, p);
  if (p.tokens > 1) return start_for<T, 4>(ctx, rows, p);
  start_for<T, 1>(ctx, rows, p);
}

}  // namespace

void narrow_gemv(ExecContext& ctx, const DenseGemvArgs& args) {
  BL_CHECK(args.out.columns() <= kMaxNarrowColumns);
  visit_float_dtype(args.type, [&](auto tag) { start<typename decltype(tag)::type>(ctx, args); });
}

}  // namespace bl::cuda
