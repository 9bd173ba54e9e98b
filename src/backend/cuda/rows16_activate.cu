#include <algorithm>

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/attention_launch.cuh"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/row_view.cuh"
#include "backend/cuda/rows16.cuh"

namespace bl::cuda {
namespace {

// Results as large as this are left as they are: far from overflow, and what matters beside them is
// far from the subnormals.
constexpr float kSmallestOfUse = 0x1p-6f;
constexpr float kLargestOfUse = 0x1p15f;

struct ActivationRows {
  ActivationRows16Args args;
  ActivationParameters parameters;
};

// Eight elements, as floats.
template <bool kHalves>
__device__ __forceinline__ void load_eight(const void* base, std::int64_t at, float (&out)[8]) {
  if constexpr (kHalves) {
    const uint4 words = *reinterpret_cast<const uint4*>(static_cast<const __half*>(base) + at);
    const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(reinterpret_cast<const __half2&>(pairs[i]));
      out[2 * i] = pair.x * (1.0f / kHalfGate);
      out[2 * i + 1] = pair.y * (1.0f / kHalfGate);
    }
  } else {
    const auto low = load_pack<4>(static_cast<const float*>(base) + at);
    const auto high = load_pack<4>(static_cast<const float*>(base) + at + 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[i] = low.at[i];
      out[4 + i] = high.at[i];
    }
  }
}

// A row, times `reciprocal`, into shared memory; what this thread saw of it that is largest, before
// that. `one`: act(gate) · up of an element.
template <bool kHalves, class One>
__device__ __forceinline__ float stage_row(const ActivationRows16Args& a, std::int64_t row,
                                           float reciprocal, std::uint16_t* staged,
                                           const One& one) {
  float largest = 0.0f;
  const int eights = static_cast<int>(a.width / 8);
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < eights; i += kRows16Threads) {
    float gate[8];
    float up[8] = {};
    load_eight<kHalves>(a.gate, row * a.gate_stride + 8 * i, gate);
    if (a.up != nullptr) load_eight<kHalves>(a.up, row * a.up_stride + 8 * i, up);
    std::uint32_t words[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float low = one(gate[2 * e], up[2 * e]);
      const float high = one(gate[2 * e + 1], up[2 * e + 1]);
      largest = fmaxf(largest, fmaxf(fabsf(low), fabsf(high)));
      words[e] = half_pair(low * reciprocal, high * reciprocal);
    }
    reinterpret_cast<uint4*>(staged)[i] = {words[0], words[1], words[2], words[3]};
  }
  return largest;
}

template <bool kHalves>
__device__ __forceinline__ float stage_row(const ActivationRows& p, std::int64_t row,
                                           float reciprocal, std::uint16_t* staged) {
  const bool gated = p.args.up != nullptr;
  if (p.parameters.kind == Activation::kSilu) {
    return stage_row<kHalves>(p.args, row, reciprocal, staged, [&](float gate, float up) {
      return activated<Activation::kSilu>(p.parameters, gate, up, gated);
    });
  }
  return stage_row<kHalves>(p.args, row, reciprocal, staged, [&](float gate, float up) {
    return activated(p.parameters, gate, up, gated);
  });
}

// grid (tokens).
template <bool kHalves>
__global__ void __launch_bounds__(kRows16Threads, kRows16Ctas)
    activation_rows16_kernel(const __grid_constant__ ActivationRows p) {
  allow_next();
  extern __shared__ __align__(16) std::uint16_t staged[];
  __shared__ float parts[kRows16Threads / 32];
  dependency_wait();
  const float largest = cta_max(stage_row<kHalves>(p, blockIdx.x, 1.0f, staged), parts);
  if (threadIdx.x == 0) p.args.row_largest[blockIdx.x] = largest;
  store_row16(staged, p.args.to, blockIdx.x);
}

// The power of two of all rows; where it is not 1, the rows once more.
template <bool kHalves>
__global__ void __launch_bounds__(kRows16Threads)
    settle_power_kernel(const __grid_constant__ ActivationRows p) {
  allow_next();
  extern __shared__ __align__(16) std::uint16_t staged[];
  __shared__ float parts[kRows16Threads / 32];
  dependency_wait();
  float largest = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < p.args.tokens; i += kRows16Threads) {
    largest = fmaxf(largest, p.args.row_largest[i]);
  }
  largest = cta_max(largest, parts);
  const bool fits = largest >= kSmallestOfUse && largest <= kLargestOfUse;
  const float power = fits ? 1.0f : power_of_two_for(largest, kLargestExponent);
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.args.power = power;
  if (power == 1.0f) return;
  for (std::int64_t row = blockIdx.x; row < p.args.tokens; row += gridDim.x) {
    __syncthreads();  // the row before is stored
    stage_row<kHalves>(p, row, 1.0f / power, staged);
    __syncthreads();
    store_row16(staged, p.args.to, row);
  }
}

template <bool kHalves>
void launch_both(ExecContext& ctx, const ActivationRows& p) {
  const std::size_t bytes = static_cast<std::size_t>(p.args.width) * 2;
  allow_shared_bytes(activation_rows16_kernel<kHalves>, bytes);
  allow_shared_bytes(settle_power_kernel<kHalves>, bytes);
  const auto tokens = static_cast<unsigned>(p.args.tokens);
  launch(shape_of(ctx, dim3(tokens), kRows16Threads, bytes), activation_rows16_kernel<kHalves>, p);
  const auto few = std::min(tokens, static_cast<unsigned>(2 * cuda_ops_of(ctx).multiprocessors));
  launch(shape_of(ctx, dim3(few), kRows16Threads, bytes), settle_power_kernel<kHalves>, p);
}

}  // namespace

void make_activation_rows16(ExecContext& ctx, const ActivationRows16Args& args,
                            const ActivateArgs& activation) {
  const ActivationRows p{args, activation_parameters(activation)};
  if (args.halves) {
    launch_both<true>(ctx, p);
  } else {
    launch_both<false>(ctx, p);
  }
}

}  // namespace bl::cuda
