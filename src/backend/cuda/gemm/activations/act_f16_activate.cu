#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/gemm/activations/act_f16.cuh"
#include "backend/cuda/gemm/gemm_ops.h"
#include "backend/cuda/ops/activation_math.cuh"

namespace bl::cuda {
namespace {

// Rows with a permutation are made two at a time, with as many rows in flight as single ones.
constexpr int kPairThreads = 512;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr int kPairCtas = 3;
#else
constexpr int kPairCtas = 1;
#endif
// Shared memory for two rows, so that kPairCtas CTAs fit into the 228 KB of a data-centre card's
// multiprocessor (9.0 and later); other cards make single rows.
constexpr std::size_t kMostPairBytes = 72 << 10;
constexpr bool stages_row_pairs(int compute_capability) {
  return compute_capability == 90 || compute_capability == 100 || compute_capability == 103;
}

struct ActivationRows {
  ActF16ActivateArgs args;
  ActivationParameters parameters;
};

// Eight elements of gate or up, as they are in memory.
template <bool kHalves>
struct RawEight {
  static constexpr int kWords = kHalves ? 1 : 2;
  uint4 words[kWords] = {};

  __device__ __forceinline__ void load(const void* base, std::int64_t at) {
    const auto* from = reinterpret_cast<const uint4*>(static_cast<const std::byte*>(base) +
                                                      at * (kHalves ? 2 : 4));
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = from[i];
  }
  // Returns element e as a float; e is a constant in unrolled loops.
  __device__ __forceinline__ float at(int e) const {
    const uint4& w = words[kHalves ? 0 : e / 4];
    const int i = kHalves ? e / 2 : e % 4;
    const std::uint32_t word = i == 0 ? w.x : i == 1 ? w.y : i == 2 ? w.z : w.w;
    if constexpr (!kHalves) {
      return __uint_as_float(word);
    } else {
      const auto& pair = reinterpret_cast<const __half2&>(word);
      return (e % 2 == 0 ? __low2float(pair) : __high2float(pair)) * (1.0f / kHalfGate);
    }
  }
};

// Eight elements of gate and of up in one row.
template <bool kHalves>
struct RawEights {
  RawEight<kHalves> gate;
  RawEight<kHalves> up;

  __device__ __forceinline__ void load(const ActF16ActivateArgs& a, std::int64_t row, int eight) {
    gate.load(a.gate, row * a.gate_stride + 8 * eight);
    if (a.up != nullptr) up.load(a.up, row * a.up_stride + 8 * eight);
  }
};

// Returns the results times `reciprocal`, and raises `largest` to their magnitudes before that.
// `one`: act(gate) · up of one element.
template <bool kHalves, class One>
__device__ __forceinline__ uint4 eight_results(const RawEights<kHalves>& raw, float reciprocal,
                                               const One& one, float& largest) {
  std::uint32_t words[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float low = one(raw.gate.at(2 * e), raw.up.at(2 * e));
    const float high = one(raw.gate.at(2 * e + 1), raw.up.at(2 * e + 1));
    largest = fmaxf(largest, fmaxf(fabsf(low), fabsf(high)));
    words[e] = pack_halves(low * reciprocal, high * reciprocal);
  }
  return {words[0], words[1], words[2], words[3]};
}

// Puts a row into shared memory. Returns the largest magnitude that this thread saw.
template <bool kHalves, class One>
__device__ __forceinline__ float stage_row(const ActF16ActivateArgs& a, std::int64_t row,
                                           float reciprocal, std::uint16_t* staged,
                                           const One& one) {
  float largest = 0.0f;
  const int eights = static_cast<int>(a.width / 8);
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < eights; i += kActF16Threads) {
    RawEights<kHalves> raw;
    raw.load(a, row, i);
    reinterpret_cast<uint4*>(staged)[i] = eight_results(raw, reciprocal, one, largest);
  }
  return largest;
}

// Puts two interleaved rows there (act_f16.cuh); `second` may equal `first`.
template <bool kHalves, class One>
__device__ __forceinline__ float stage_pair(const ActF16ActivateArgs& a, std::int64_t first,
                                            std::int64_t second, std::uint32_t* staged,
                                            const One& one) {
  float largest = 0.0f;
  const int eights = static_cast<int>(a.width / 8);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < eights; i += kPairThreads) {
    // Halves: load everything before the first use, since these rows wait for memory.
    RawEights<kHalves> of_first;
    RawEights<kHalves> of_second;
    of_first.load(a, first, i);
    if (kHalves) of_second.load(a, second, i);
    const uint4 low = eight_results(of_first, 1.0f, one, largest);
    if (!kHalves) of_second.load(a, second, i);
    const uint4 high = eight_results(of_second, 1.0f, one, largest);
    stage_eights(low, high, reinterpret_cast<uint4*>(staged) + 2 * i);
  }
  return largest;
}

// Calls `stage` with the activation as its argument; SiLU, the usual one, is compiled separately.
template <class Stage>
__device__ __forceinline__ float with_activation(const ActivationRows& p, const Stage& stage) {
  const bool gated = p.args.up != nullptr;
  if (p.parameters.kind == Activation::kSilu) {
    return stage([&](float gate, float up) {
      return activated<Activation::kSilu>(p.parameters, gate, up, gated);
    });
  }
  return stage([&](float gate, float up) { return activated(p.parameters, gate, up, gated); });
}

template <bool kHalves>
__device__ __forceinline__ float stage_row(const ActivationRows& p, std::int64_t row,
                                           float reciprocal, std::uint16_t* staged) {
  return with_activation(
      p, [&](const auto& one) { return stage_row<kHalves>(p.args, row, reciprocal, staged, one); });
}

// grid (tokens / 2), for `to` with a permutation.
template <bool kHalves>
__global__ void __launch_bounds__(kPairThreads, kPairCtas)
    activation_pairs_kernel(const __grid_constant__ ActivationRows p) {
  pdl_trigger();
  extern __shared__ __align__(16) std::uint32_t staged_pairs[];
  __shared__ float warp_partials[kPairThreads / 32];
  const std::int64_t first = 2 * std::int64_t{blockIdx.x};
  const bool has_second = first + 1 < p.args.tokens;
  const std::int64_t second = has_second ? first + 1 : first;
  pdl_wait();
  const float seen = with_activation(p, [&](const auto& one) {
    return stage_pair<kHalves>(p.args, first, second, staged_pairs, one);
  });
  EightFeatures features;
  features.load(p.args.to, static_cast<int>(threadIdx.x));
  const float largest = cta_max(seen, warp_partials);
  if (threadIdx.x == 0) {
    p.args.row_largest[first] = largest;
    p.args.row_largest[second] = largest;
  }
  store_row_pair<kPairThreads>(staged_pairs, p.args.to, first, has_second, features);
}

// grid (tokens).
template <bool kHalves>
__global__ void __launch_bounds__(kActF16Threads, kActF16Ctas)
    act_f16_activate_kernel(const __grid_constant__ ActivationRows p) {
  pdl_trigger();
  extern __shared__ __align__(16) std::uint16_t staged[];
  __shared__ float warp_partials[kActF16Threads / 32];
  pdl_wait();
  const float largest = cta_max(stage_row<kHalves>(p, blockIdx.x, 1.0f, staged), warp_partials);
  if (threadIdx.x == 0) p.args.row_largest[blockIdx.x] = largest;
  store_row16(staged, p.args.to, blockIdx.x);
}

// Finds the power of two of all rows; if it is not 1, makes all rows again.
template <bool kHalves>
__global__ void __launch_bounds__(kActF16Threads)
    settle_act_scale_kernel(const __grid_constant__ ActivationRows p) {
  pdl_trigger();
  extern __shared__ __align__(16) std::uint16_t staged[];
  __shared__ float warp_partials[kActF16Threads / 32];
  pdl_wait();
  float largest = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < p.args.tokens; i += kActF16Threads) {
    largest = fmaxf(largest, p.args.row_largest[i]);
  }
  largest = cta_max(largest, warp_partials);
  const float act_scale = settled_act_scale(largest);
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.args.act_scale = act_scale;
  if (act_scale == 1.0f) return;
  for (std::int64_t row = blockIdx.x; row < p.args.tokens; row += gridDim.x) {
    __syncthreads();  // the row before has been stored
    stage_row<kHalves>(p, row, 1.0f / act_scale, staged);
    __syncthreads();
    store_row16(staged, p.args.to, row);
  }
}

template <bool kHalves>
void launch_both(ExecContext& ctx, const ActivationRows& p) {
  const std::size_t bytes = static_cast<std::size_t>(p.args.width) * 2;
  allow_shared_bytes(act_f16_activate_kernel<kHalves>, bytes);
  allow_shared_bytes(settle_act_scale_kernel<kHalves>, bytes);
  const auto tokens = static_cast<unsigned>(p.args.tokens);
  const bool pairs = p.args.to.feature_of_k != nullptr && 2 * bytes <= kMostPairBytes &&
                     stages_row_pairs(cuda_device(ctx).facts().compute_capability);
  if (pairs) {
    allow_shared_bytes(activation_pairs_kernel<kHalves>, 2 * bytes);
    launch(shape_of(ctx, dim3((tokens + 1) / 2), kPairThreads, 2 * bytes),
           activation_pairs_kernel<kHalves>, p);
  } else {
    launch(shape_of(ctx, dim3(tokens), kActF16Threads, bytes), act_f16_activate_kernel<kHalves>, p);
  }
  const auto few =
      std::min(tokens, static_cast<unsigned>(2 * cuda_device(ctx).facts().multiprocessors));
  launch(shape_of(ctx, dim3(few), kActF16Threads, bytes), settle_act_scale_kernel<kHalves>, p);
}

}  // namespace

void make_act_f16_activate(ExecContext& ctx, const ActF16ActivateArgs& args,
                           const ActivateArgs& activation) {
  const ActivationRows p{args, activation_parameters(activation)};
  if (args.halves) {
    launch_both<true>(ctx, p);
  } else {
    launch_both<false>(ctx, p);
  }
}

}  // namespace bl::cuda
