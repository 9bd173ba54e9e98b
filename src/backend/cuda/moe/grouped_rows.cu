#include "backend/cuda/moe/grouped_rows.h"

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/activations/act_f16.cuh"

namespace bl::cuda {
namespace {

constexpr int kThreads = kActF16Threads;
constexpr int kWarps = kThreads / 32;

// Stores a row that is in shared memory in the order of features, and zeros behind its last k.
// `at(feature)` returns the bits of a half.
template <class At>
__device__ __forceinline__ void store_ordered(const ExpertMatrix& matrix, int k, __half* to,
                                              const At& at) {
  const auto* features = reinterpret_cast<const int4*>(matrix.feature_of_k);
  const int eights = matrix.view.k_steps * (kKStepSize / 8);
  auto* out = reinterpret_cast<uint4*>(to);
  const auto threads = static_cast<int>(blockDim.x);
  const auto value = [&](int feature) { return feature < 0 ? 0u : std::uint32_t{at(feature)}; };
  for (int i = static_cast<int>(threadIdx.x); i < k / 8; i += threads) {
    if (i >= eights) {
      out[i] = uint4{};
      continue;
    }
    const int4 a = __ldg(features + 2 * i);
    const int4 b = __ldg(features + 2 * i + 1);
    out[i] = {value(a.x) | value(a.y) << 16, value(a.z) | value(a.w) << 16,
              value(b.x) | value(b.y) << 16, value(b.z) | value(b.w) << 16};
  }
}

__device__ __forceinline__ const float* weights_of(const ExpertRows& rows, int token) {
  return rows.weights + token * rows.weight_stride;
}

// grid (tokens)
__global__ void __launch_bounds__(kThreads)
    token_largest_kernel(const __grid_constant__ GroupedInputArgs p, float* to) {
  __shared__ float warp_partials[kWarps];
  pdl_trigger();
  pdl_wait();
  const auto token = static_cast<int>(blockIdx.x);
  const float* x = p.x + token * p.x_stride;
  float largest = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < p.in; i += kThreads) {
    largest = fmaxf(largest, fabsf(x[i]));
  }
  largest = cta_max(largest, warp_partials);
  if (threadIdx.x != 0) return;
  float weight = p.weigh ? 0.0f : 1.0f;
  for (int j = 0; p.weigh && j < p.rows.k; ++j) {
    weight = fmaxf(weight, fabsf(weights_of(p.rows, token)[j]));
  }
  to[token] = largest * weight;
}

// grid (tokens). A token's row is read once for all of its experts.
__global__ void __launch_bounds__(kThreads)
    grouped_input_kernel(const __grid_constant__ GroupedInputArgs p) {
  extern __shared__ __align__(16) std::uint16_t staged[];
  __shared__ float warp_partials[kWarps];
  pdl_trigger();
  pdl_wait();
  const auto tokens = static_cast<int>(gridDim.x);
  const auto token = static_cast<int>(blockIdx.x);
  float largest = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < tokens; i += kThreads) {
    largest = fmaxf(largest, p.token_largest[i]);
  }
  const float power = power_of_two_for(cta_max(largest, warp_partials), kLargestExponent);
  if (token == 0 && threadIdx.x == 0) *p.out_scale = p.multiplier * power;
  const float* x = p.x + token * p.x_stride;
  const std::int32_t* rows = p.rows.row_of_choice + token * p.rows.k;
  const int live = *p.rows.live_rows;
  for (int row = live + token; row < p.rows.choices; row += tokens) {
    auto* to = reinterpret_cast<uint4*>(p.to + std::int64_t{row} * p.k);
    for (int i = static_cast<int>(threadIdx.x); i < p.k / 8; i += kThreads) to[i] = uint4{};
  }
  for (int j = 0; j < p.rows.k; ++j) {
    if (j == 0 || p.weigh) {
      const float factor = (p.weigh ? weights_of(p.rows, token)[j] : 1.0f) / power;
      if (j > 0) __syncthreads();  // the row of the choice before has been read
      for (int i = static_cast<int>(threadIdx.x); i < p.in; i += kThreads) {
        staged[i] = half_of_float(x[i] * factor);
      }
      __syncthreads();
    }
    if (rows[j] < 0) continue;
    store_ordered(p.table[p.rows.experts[token * p.rows.k + j]], p.k,
                  p.to + std::int64_t{rows[j]} * p.k, [](int feature) { return staged[feature]; });
  }
}

// act(gate) · up of one row, with biases.
struct BiasedHidden {
  const float* first;
  const float* gate_bias;  // or null
  const float* up_bias;    // or null
  int width;
  bool gated;
  ActivationParameters activation;
  __device__ __forceinline__ float operator()(int c) const {
    float gate = first[c];
    if (gate_bias != nullptr) gate += gate_bias[c];
    if (!gated) return activated(activation, gate, 0.0f, false);
    float up = first[width + c];
    if (up_bias != nullptr) up += up_bias[c];
    return activated(activation, gate, up, true);
  }
};

__device__ __forceinline__ BiasedHidden biased_hidden(const GroupedHiddenArgs& p, int row,
                                                      int expert) {
  const float* up = p.up[expert].bias;
  BiasedHidden hidden{p.first + row * p.first_stride, up, nullptr, p.width, p.gated, p.activation};
  if (!p.gated) return hidden;
  if (p.gate != nullptr) {
    hidden.gate_bias = p.gate[expert].bias;
    hidden.up_bias = up;
  } else if (up != nullptr) {
    hidden.up_bias = up + p.width;
  }
  return hidden;
}

// grid (rows)
__global__ void __launch_bounds__(kThreads)
    grouped_hidden_kernel(const __grid_constant__ GroupedHiddenArgs p) {
  extern __shared__ __align__(16) std::uint16_t staged[];
  __shared__ float warp_partials[kWarps];
  pdl_trigger();
  pdl_wait();
  const auto row = static_cast<int>(blockIdx.x);
  __half* to = p.to + std::int64_t{row} * p.k;
  if (row >= *p.rows.live_rows) {
    for (int i = static_cast<int>(threadIdx.x); i < p.k / 8; i += kThreads) {
      reinterpret_cast<uint4*>(to)[i] = uint4{};
    }
    return;
  }
  const int expert = p.rows.experts[p.rows.choice_of_row[row]];
  const BiasedHidden hidden = biased_hidden(p, row, expert);
  float largest = 0.0f;
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += kThreads) {
    largest = fmaxf(largest, fabsf(hidden(c)));
  }
  const float power = power_of_two_for(cta_max(largest, warp_partials), kLargestExponent);
  if (threadIdx.x == 0) p.row_scales[row] = power;
  const float divide = 1.0f / power;
  for (int c = static_cast<int>(threadIdx.x); c < p.width; c += kThreads) {
    staged[c] = half_of_float(hidden(c) * divide);
  }
  __syncthreads();
  store_ordered(p.down[expert], p.k, to, [](int feature) { return staged[feature]; });
}

// grid (rows)
__global__ void __launch_bounds__(kThreads)
    grouped_gather_kernel(const __grid_constant__ GroupedGatherArgs p) {
  extern __shared__ __align__(16) std::uint16_t staged[];
  const auto threads = static_cast<int>(blockDim.x);
  pdl_trigger();
  pdl_wait();
  const auto row = static_cast<int>(blockIdx.x);
  __half* data = p.data + std::int64_t{row} * p.k;
  if (row < *p.rows.live_rows) {
    const auto* from = reinterpret_cast<const uint4*>(data);
    for (int i = static_cast<int>(threadIdx.x); i < p.width / 8; i += threads) {
      reinterpret_cast<uint4*>(staged)[i] = from[i];
    }
    __syncthreads();
    const int expert = p.rows.experts[p.rows.choice_of_row[row]];
    store_ordered(p.down[expert], p.k, data, [](int feature) { return staged[feature]; });
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < p.k / 8; i += threads) {
    reinterpret_cast<uint4*>(data)[i] = uint4{};
  }
}

LaunchShape rows_shape(ExecContext& ctx, int rows, std::int64_t width) {
  return shape_of(ctx, dim3(static_cast<unsigned>(rows)), kThreads,
                  static_cast<std::size_t>(width) * 2);
}

}  // namespace

void find_token_largest(ExecContext& ctx, const GroupedInputArgs& args, float* to) {
  launch(rows_shape(ctx, args.rows.choices / args.rows.k, 0), token_largest_kernel, args, to);
}

void make_grouped_input(ExecContext& ctx, const GroupedInputArgs& args) {
  launch(rows_shape(ctx, args.rows.choices / args.rows.k, args.in), grouped_input_kernel, args);
}

void make_grouped_hidden(ExecContext& ctx, const GroupedHiddenArgs& args) {
  launch(rows_shape(ctx, args.rows.choices, args.width), grouped_hidden_kernel, args);
}

void gather_grouped_hidden(ExecContext& ctx, const GroupedGatherArgs& args) {
  LaunchShape shape = rows_shape(ctx, args.rows.choices, args.width);
  // Narrow rows get small CTAs, of which more are in flight.
  shape.block.x = static_cast<unsigned>(std::clamp(args.k / 8 / 32 * 32, 32, kThreads));
  launch(shape, grouped_gather_kernel, args);
}

}  // namespace bl::cuda
