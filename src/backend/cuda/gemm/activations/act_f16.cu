#include "backend/cuda/gemm/activations/act_f16.h"

#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/gemm/activations/act_f16.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kActF16Threads;
constexpr int kWarps = kThreads / 32;
__global__ void __launch_bounds__(kThreads)
    find_largest_kernel(const float* x, std::int64_t stride, int in, float* row_largest) {
  pdl_trigger();
  pdl_wait();
  const float* row = x + blockIdx.x * stride;
  float largest = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < in; i += kThreads) {
    largest = fmaxf(largest, fabsf(row[i]));
  }
  __shared__ float warp_partials[kWarps];
  largest = cta_max(largest, warp_partials);
  if (threadIdx.x == 0) row_largest[blockIdx.x] = largest;
}

// Returns 1 / the power of two that all rows are divided by, and writes *out_scale to undo it.
__device__ __forceinline__ float reciprocal_of_act_scale(const ActF16Args& args, int tokens) {
  __shared__ float warp_partials[kWarps];
  float largest = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < tokens; i += kThreads) {
    largest = fmaxf(largest, args.row_largest[i]);
  }
  const float act_scale = power_of_two_for(cta_max(largest, warp_partials), kLargestExponent);
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.out_scale = args.multiplier * act_scale;
  return 1.0f / act_scale;
}

// grid (tokens).
__global__ void __launch_bounds__(kThreads)
    half_rows_kernel(ActF16Args args, const float* x, std::int64_t stride, int tokens) {
  pdl_trigger();
  pdl_wait();
  const float reciprocal = reciprocal_of_act_scale(args, tokens);
  const float* row = x + blockIdx.x * stride;
  auto* to = static_cast<__half2*>(args.to.rows) + blockIdx.x * (args.to.k / 2);
  for (int i = static_cast<int>(threadIdx.x); i < args.to.k / 2; i += kThreads) {
    float2 v;
    if (args.to.feature_of_k != nullptr) {
      const int2 c = reinterpret_cast<const int2*>(args.to.feature_of_k)[i];
      v = {c.x < 0 ? 0.0f : row[c.x], c.y < 0 ? 0.0f : row[c.y]};
    } else {
      v = {row[2 * i], row[2 * i + 1]};
    }
    to[i] = __floats2half2_rn(v.x * reciprocal, v.y * reciprocal);
  }
}

// As half_rows_kernel, for rows that fit into shared memory: read once in order, permuted there.
// Rows of x must be 16-byte aligned and whole float4s, and k a multiple of eight.
__global__ void __launch_bounds__(kThreads)
    gathered_rows_kernel(ActF16Args args, const float* x, std::int64_t stride, int2 shape) {
  const auto [tokens, in] = shape;
  pdl_trigger();
  extern __shared__ __align__(16) std::uint16_t staged[];
  pdl_wait();
  const float reciprocal = reciprocal_of_act_scale(args, tokens);
  const auto* row = reinterpret_cast<const float4*>(x + blockIdx.x * stride);
  for (int i = static_cast<int>(threadIdx.x); i < in / 4; i += kThreads) {
    const float4 v = row[i];
    reinterpret_cast<uint2*>(staged)[i] = {pack_halves(v.x * reciprocal, v.y * reciprocal),
                                           pack_halves(v.z * reciprocal, v.w * reciprocal)};
  }
  __syncthreads();
  store_row16(staged, args.to, blockIdx.x);
}

// Permutes halves [tokens, in], eight at a time. kPairs: two rows a CTA; `to` has a permutation.
template <bool kPairs>
__global__ void __launch_bounds__(kThreads)
    gather_halves_kernel(const uint4* x, int2 shape, ActF16 to, float* act_scale) {
  const auto [tokens, in] = shape;
  pdl_trigger();
  extern __shared__ __align__(16) std::uint16_t staged[];
  const std::int64_t first = (kPairs ? 2 : 1) * std::int64_t{blockIdx.x};
  const bool has_second = kPairs && first + 1 < tokens;
  const auto thread = static_cast<int>(threadIdx.x);
  EightFeatures features;
  if (kPairs) features.load(to, thread);
  pdl_wait();
  if (blockIdx.x == 0 && threadIdx.x == 0) *act_scale = 1.0f;
  const int eights = in / 8;
  const uint4* row = x + first * eights;
  const uint4* second = has_second ? row + eights : row;
  constexpr int kAtOnce = 2;
  for (int begin = thread; begin < eights; begin += kAtOnce * kThreads) {
    uint4 low[kAtOnce];
    uint4 high[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = begin + j * kThreads;
      if (i >= eights) break;
      low[j] = row[i];
      if (kPairs) high[j] = second[i];
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = begin + j * kThreads;
      if (i >= eights) break;
      auto* to_place = reinterpret_cast<uint4*>(staged) + (kPairs ? 2 : 1) * i;
      if constexpr (kPairs) {
        stage_eights(low[j], high[j], to_place);
      } else {
        *to_place = low[j];
      }
    }
  }
  __syncthreads();
  if constexpr (kPairs) {
    store_row_pair<kThreads>(reinterpret_cast<const std::uint32_t*>(staged), to, first, has_second,
                             features);
  } else {
    store_row16(staged, to, first);
  }
}

__global__ void multiply_act_scale_kernel(const float* act_scale, float multiplier,
                                          float* out_scale) {
  pdl_trigger();
  pdl_wait();
  *out_scale = *act_scale * multiplier;
}

__global__ void __launch_bounds__(kThreads)
    bf16_rows_kernel(ActF16Args args, const float* x, std::int64_t stride) {
  pdl_trigger();
  pdl_wait();
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.out_scale = args.multiplier;
  const float* row = x + blockIdx.x * stride;
  auto* to = static_cast<__nv_bfloat16*>(args.to.rows) + blockIdx.x * args.to.k;
  for (int i = static_cast<int>(threadIdx.x); i < args.to.k; i += kThreads) {
    to[i] = __float2bfloat16_rn(row[i]);
  }
}

__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(float* out, std::int64_t stride, int columns, const float* bias) {
  pdl_trigger();
  pdl_wait();
  float* row = out + blockIdx.y * stride;
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (c < columns) row[c] += bias[c];
}

}  // namespace

void find_largest(ExecContext& ctx, const TensorView& x, float* row_largest) {
  launch(shape_of(ctx, dim3(static_cast<unsigned>(x.rows())), kThreads), find_largest_kernel,
         x.as<const float>(), x.row_stride, static_cast<int>(x.columns()), row_largest);
}

void make_act_f16(ExecContext& ctx, const ActF16Args& args) {
  BL_CHECK(args.to.k % 2 == 0);
  const LaunchShape shape = shape_of(ctx, dim3(static_cast<unsigned>(args.x.rows())), kThreads);
  const std::int64_t in = args.x.columns();
  const bool staged = args.to.feature_of_k != nullptr && in % 4 == 0 && in * 2 <= kPlainSmemBytes &&
                      args.x.row_stride % 4 == 0 && is_aligned(args.x.data, 16) &&
                      args.to.k % 8 == 0;
  if (staged) {
    const LaunchShape with_room = shape_of(ctx, dim3(static_cast<unsigned>(args.x.rows())),
                                           kThreads, static_cast<std::size_t>(in) * 2);
    launch(with_room, gathered_rows_kernel, args, args.x.as<const float>(), args.x.row_stride,
           int2{static_cast<int>(args.x.rows()), static_cast<int>(in)});
  } else if (args.to.type == DType::kBF16) {
    launch(shape, bf16_rows_kernel, args, args.x.as<const float>(), args.x.row_stride);
  } else {
    launch(shape, half_rows_kernel, args, args.x.as<const float>(), args.x.row_stride,
           static_cast<int>(args.x.rows()));
  }
}

void gather_act_f16(ExecContext& ctx, const TensorView& halves, const ActF16& to,
                    float* act_scale) {
  const auto tokens = static_cast<int>(halves.rows());
  const auto in = static_cast<int>(halves.columns());
  const bool pairs = to.feature_of_k != nullptr && 4 * std::int64_t{in} <= kPlainSmemBytes;
  const std::size_t bytes = static_cast<std::size_t>(in) * (pairs ? 4 : 2);
  const auto ctas = static_cast<unsigned>(pairs ? (tokens + 1) / 2 : tokens);
  const auto kernel = pairs ? gather_halves_kernel<true> : gather_halves_kernel<false>;
  allow_shared_bytes(kernel, bytes);
  launch(shape_of(ctx, dim3(ctas), kThreads, bytes), kernel, halves.as<const uint4>(),
         int2{tokens, in}, to, act_scale);
}

void multiply_act_scale(ExecContext& ctx, const float* act_scale, float multiplier,
                        float* out_scale) {
  launch(shape_of(ctx, dim3(1), dim3(1)), multiply_act_scale_kernel, act_scale, multiplier,
         out_scale);
}

void add_bias(ExecContext& ctx, const TensorView& out, const float* bias) {
  const dim3 grid(static_cast<unsigned>((out.columns() + kThreads - 1) / kThreads),
                  static_cast<unsigned>(out.rows()));
  launch(shape_of(ctx, grid, kThreads), add_bias_kernel, out.as<float>(), out.row_stride,
         static_cast<int>(out.columns()), bias);
}

}  // namespace bl::cuda
