#include <algorithm>
#include <type_traits>

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/gemm/activations/act_f16.cuh"
#include "backend/cuda/layout/gemm_limits.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kMostPacks = 8;  // packs of four elements a thread
static_assert(kWidestNormedRow == kMostPacks * 4 * kActF16Threads);

struct NormRows {
  Rows<const float> x;
  const float* weight = nullptr;  // may be null
  const float* bias = nullptr;    // may be null
  ActF16 to[kMaxMatrices];        // the same rows, each in its own order
  int count = 0;
  std::int64_t rows = 0;
  int width = 0;
  float eps = 0.0f;
  float offset = 0.0f;  // 1 if the weight means (1 + weight)
  bool centred = false;
  float multiplier = 1.0f;
  float* out_scale = nullptr;
};

__device__ __forceinline__ float largest_of(const Pack<float, 4>& pack) {
  return fmaxf(fmaxf(fabsf(pack.at[0]), fabsf(pack.at[1])),
               fmaxf(fabsf(pack.at[2]), fabsf(pack.at[3])));
}

__device__ __forceinline__ Pack<float, 4> weights_at(const NormRows& p, int i) {
  Pack<float, 4> weights{{1.0f, 1.0f, 1.0f, 1.0f}};
  if (p.weight != nullptr) {
    weights = load_pack<4>(p.weight + i);
    for (int e = 0; e < 4; ++e) weights.at[e] += p.offset;
  }
  return weights;
}

// The first column of a thread's pack: a pack has four adjacent columns, packs alternate over
// threads.
__device__ __forceinline__ int column_of(int pack) {
  return (pack * kActF16Threads + static_cast<int>(threadIdx.x)) * 4;
}

// Writes to `bounds` the most that a result in the columns of each warp can be.
template <int kPacks>
__device__ __forceinline__ void find_bounds(const NormRows& p,
                                            float (&bounds)[kActF16Threads / 32]) {
  const float root = sqrtf(static_cast<float>(p.width));
  Pack<float, 4> weights[kPacks];  // all loaded before the first use
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = column_of(j);
    weights[j] = {};
    if (i < p.width) weights[j] = weights_at(p, i);
  }
  float most = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = column_of(j);
    float bound = root * largest_of(weights[j]);
    if (p.bias != nullptr && i < p.width) bound += largest_of(load_pack<4>(p.bias + i));
    most = fmaxf(most, bound);
  }
  most = warp_max(most);
  if (lane_index() == 0) bounds[warp_index()] = most;
}

// Returns the power of two of all rows. A value divided by the root mean square (or deviation) of
// its row is at most √width, so the weights alone decide.
__device__ __forceinline__ float act_scale_for(const NormRows& p, float most) {
  const float act_scale =
      p.to[0].type == DType::kF16 ? power_of_two_for(most, kLargestExponent) : 1.0f;
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.out_scale = p.multiplier * act_scale;
  return act_scale;
}

// A CTA's rows, held in registers.
template <int kPacks, int kRows>
struct NormedRows {
  using Parts = float[kRows][kActF16Threads / 32];
  Pack<float, 4> values[kRows][kPacks];  // zeros beyond the width
  float mean[kRows] = {};
  float inverse[kRows] = {};

  // Computes means and deviations; all threads take part, with barriers.
  __device__ __forceinline__ void measure(const NormRows& p, Parts& warp_partials) {
    const float reciprocal_width = 1.0f / static_cast<float>(p.width);
    if (p.centred) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        mean[r] = 0.0f;
#pragma unroll
        for (int j = 0; j < kPacks; ++j) {
          for (int e = 0; e < 4; ++e) mean[r] += values[r][j].at[e];
        }
      }
      sum(mean, warp_partials);
#pragma unroll
      for (int r = 0; r < kRows; ++r) mean[r] *= reciprocal_width;
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      inverse[r] = 0.0f;
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
        if (column_of(j) >= p.width) continue;
        for (int e = 0; e < 4; ++e) {
          const float d = values[r][j].at[e] - mean[r];
          inverse[r] += d * d;
        }
      }
    }
    sum(inverse, warp_partials);
#pragma unroll
    for (int r = 0; r < kRows; ++r) inverse[r] = rsqrtf(inverse[r] * reciprocal_width + p.eps);
  }

  // Calls store(column, words of each row) for every pack.
  template <class Store>
  __device__ __forceinline__ void each_result(const NormRows& p, float act_scale,
                                              const Store& store) const {
    const bool halves = p.to[0].type == DType::kF16;
    const float reciprocal = 1.0f / act_scale;
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      const int i = column_of(j);
      if (i >= p.width) continue;
      const Pack<float, 4> weight = weights_at(p, i);
      Pack<float, 4> bias{};
      if (p.bias != nullptr) bias = load_pack<4>(p.bias + i);
      uint2 words[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float y[4];
        for (int e = 0; e < 4; ++e) {
          const float normalized = (values[r][j].at[e] - mean[r]) * inverse[r];
          y[e] = (normalized * weight.at[e] + bias.at[e]) * reciprocal;
        }
        words[r] = halves ? uint2{pack_halves(y[0], y[1]), pack_halves(y[2], y[3])}
                          : uint2{bfloat_pair(y[0], y[1]), bfloat_pair(y[2], y[3])};
      }
      store(i, words);
    }
  }

 private:
  // A cta_sum for each row, with one barrier for all.
  __device__ __forceinline__ static void sum(float (&sums)[kRows], Parts& warp_partials) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sums[r] = warp_sum(sums[r]);
      if (lane_index() == 0) warp_partials[r][warp_index()] = sums[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sums[r] =
          warp_sum(lane_index() < kActF16Threads / 32 ? warp_partials[r][lane_index()] : 0.0f);
    }
  }
};

// A CTA has one row, or two that are permuted: one load of the weights and the permutation, and one
// access to shared memory serve both.
template <int kPacks, int kRows>
__global__ void __launch_bounds__(kActF16Threads, kPacks > 4 || kRows > 1 ? 4 : kActF16Ctas)
    act_f16_norm_kernel(NormRows p) {
  pdl_trigger();
  using Normed = NormedRows<kPacks, kRows>;
  using Staged = std::conditional_t<kRows == 1, std::uint16_t, std::uint32_t>;
  __shared__ typename Normed::Parts warp_partials;
  __shared__ float bounds[kActF16Threads / 32];
  __shared__ __align__(16) Staged staged[kPacks * 4 * kActF16Threads];
  const std::int64_t first = kRows * std::int64_t{blockIdx.x};
  const bool has_last = first + kRows <= p.rows;
  // Weights are read again below, from the cache: registers limit how many rows are in flight.
  find_bounds<kPacks>(p, bounds);
  pdl_wait();
  Normed normed;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float* row = p.x[has_last ? first + r : first];
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      const int i = column_of(j);
      normed.values[r][j] = {};
      if (i < p.width) normed.values[r][j] = load_pack<4>(row + i);
    }
  }
  normed.measure(p, warp_partials);  // its barrier is enough for the bounds, too
  const float act_scale = act_scale_for(p, warp_max(bounds[lane_index() % (kActF16Threads / 32)]));
  normed.each_result(p, act_scale, [&](int i, const uint2(&words)[kRows]) {
    if constexpr (kRows == 1) {
      *reinterpret_cast<uint2*>(staged + i) = words[0];
    } else {
      *reinterpret_cast<uint4*>(staged + i) = side_by_side(words[0], words[1]);
    }
  });
  if constexpr (kRows == 1) {
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < p.count; ++i) store_row16(staged, p.to[i], first);
  } else {
    EightFeatures features;
    features.load(p.to[0], static_cast<int>(threadIdx.x));
    __syncthreads();
#pragma unroll 1
    for (int i = 0;;) {
      store_row_pair<kActF16Threads>(staged, p.to[i], first, has_last, features);
      if (++i == p.count) break;
      features.load(p.to[i], static_cast<int>(threadIdx.x));
    }
  }
}

template <int kPacks, int kRows>
void launch_norm(ExecContext& ctx, const NormRows& p) {
  const auto ctas = static_cast<unsigned>(ceil_div(p.rows, std::int64_t{kRows}));
  launch(shape_of(ctx, dim3(ctas), kActF16Threads), act_f16_norm_kernel<kPacks, kRows>, p);
}

// Two rows a CTA if they are permuted and enough to fill the card.
template <int kPacks>
void launch_norm(ExecContext& ctx, const NormRows& p) {
  const bool pairs = p.rows >= 2 * std::int64_t{cuda_device(ctx).facts().multiprocessors} &&
                     std::all_of(p.to, p.to + p.count, [](const ActF16& to) {
                       return to.feature_of_k != nullptr && to.type == DType::kF16;
                     });
  pairs ? launch_norm<kPacks, 2>(ctx, p) : launch_norm<kPacks, 1>(ctx, p);
}

}  // namespace

void make_act_f16_norm(ExecContext& ctx, const ActF16NormArgs& args, const NormArgs& norm) {
  BL_CHECK(can_fuse_norm_act_f16(args.x, norm) && !args.to.empty() &&
           args.to.size() <= kMaxMatrices);
  NormRows p;
  for (const ActF16& to : args.to) {
    BL_CHECK(to.k % 8 == 0 && to.type == args.to.front().type);
    p.to[p.count++] = to;
  }
  p.x = rows_of<const float>(args.x);
  p.weight = norm.weight.as<const float>();
  p.bias = norm.bias.as<const float>();
  p.rows = args.x.rows();
  p.width = static_cast<int>(args.x.columns());
  p.eps = norm.eps;
  p.offset = norm.unit_offset ? 1.0f : 0.0f;
  p.centred = norm.kind == NormKind::kLayer;
  p.multiplier = args.multiplier;
  p.out_scale = args.out_scale;
  const int packs = ceil_div(p.width, 4 * kActF16Threads);
  if (packs <= 2) return launch_norm<2>(ctx, p);
  if (packs <= 4) return launch_norm<4>(ctx, p);
  launch_norm<kMostPacks, 1>(ctx, p);
}

}  // namespace bl::cuda
