#pragma once
// The attention kernel for compute capability 9.0 that takes a few tokens behind a long past: more
// than 16 query rows of a kv head (split_hopper), binary16 caches with heads of 64 or 128.
//
// A cluster of up to 8 CTAs has one tile of 64 query rows, and each CTA one KV split of 128-key
// tiles. Warpgroup 0 is the producer (one thread issues TMA copies); warpgroup 1 is the consumer.
// Three stages of keys and of values: with heads of 128 a stage is 32,768 bytes and the CTA takes
// 215,040 bytes; with heads of 64 16,384 and 108,544 bytes. Tiles without new keys are copied
// before pdl_wait(). The partial results meet in distributed shared memory, in the memory of the
// stages.
//
// Bound by latency: reading keys, the cluster barrier and combining;
// bench/ladder/attention_prefill.md has the figures.

#include "backend/cuda/attention/attention_combine.cuh"
#include "backend/cuda/attention/attention_hopper_kernel.cuh"

namespace bl::cuda {

template <int kDim>
using HopperSplitConfig = HopperConfig<kDim, 1, 3>;

// The partial results of a CTA, which the other CTAs of the cluster read. They reuse the memory of
// its stages.
template <class Config>
struct HopperPartial {
  static constexpr int kStride = Config::kDim + 8;  // four consecutive rows do not share banks
  float values[Config::kRows][kStride];
  float2 row_stats[Config::kRows];  // maximum, Σ P
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Reduces the task to KV split blockIdx.x of its keys. The last splits may have no keys.
__device__ __forceinline__ void take_kv_split(HopperTask& task) {
  const auto kv_splits = static_cast<int>(gridDim.x);
  const int even = (task.end - task.begin + kv_splits - 1) / kv_splits;
  const int keys = (even + kHopperKeys - 1) / kHopperKeys * kHopperKeys;
  task.begin += static_cast<int>(blockIdx.x) * keys;
  task.end = min(task.begin + keys, task.end);
}

// Writes the consumer warpgroup's partial results; without keys, only that there are none.
template <class Config>
__device__ __forceinline__ void store_partial(HopperRows<Config>& rows, bool has_keys,
                                              HopperPartial<Config>& part) {
  const int lane = lane_index();
  if (!has_keys) {
    const auto row = static_cast<int>(threadIdx.x) - 128;
    if (row < Config::kRows) part.row_stats[row] = make_float2(-INFINITY, 0.0f);
    return;
  }
  rows.each_sum([&](int row, float max_score, float exp_sum, const auto& values) {
    if (lane % 4 == 0) part.row_stats[row] = make_float2(max_score, exp_sum);
#pragma unroll
    for (int n = 0; n < Config::kDim / 8; ++n) {
      *reinterpret_cast<float2*>(part.values[row] + 8 * n + 2 * (lane & 3)) = values(n);
    }
  });
}

// Combines the cluster's partial results and writes the result. Rows are dealt to the CTAs in turn,
// then to their warps.
template <class Config>
__device__ __forceinline__ void combine_partials(const AttentionParams& p, const HopperTask& task,
                                                 const HopperPartial<Config>& own) {
  constexpr int kOfLane = Config::kDim / 32;
  const auto kv_splits = static_cast<int>(gridDim.x);
  const std::uint32_t row_stats = shared_address(own.row_stats);
  const std::uint32_t values = shared_address(own.values);
  const int rows = min(task.span.tokens * p.group - task.first_row, Config::kRows);
#pragma unroll 1
  for (int row = static_cast<int>(blockIdx.x) + kv_splits * warp_index(); row < rows;
       row += kv_splits * Config::kThreads / 32) {
    float2 stats[kMostClusterCtas];
    float value[kMostClusterCtas][kOfLane];
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) {
      stats[c] = make_float2(-INFINITY, 0.0f);
      if (c >= kv_splits) continue;
      asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                   : "=f"(stats[c].x), "=f"(stats[c].y)
                   : "r"(cluster_address(row_stats + row * 8, c)));
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int e = 32 * i + lane_index();
        asm volatile(
            "ld.shared::cluster.f32 %0, [%1];"
            : "=f"(value[c][i])
            : "r"(cluster_address(values + (row * HopperPartial<Config>::kStride + e) * 4, c)));
      }
    }
    float most = -INFINITY;
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) most = fmaxf(most, stats[c].x);
    const int token = (task.first_row + row) / p.group;
    const int head = task.kv_head * p.group + task.first_row + row - token * p.group;
    float exp_sum = 0.0f;
    if (p.sinks != nullptr) {
      const float sink = p.sinks[head] * kLog2E;
      most = fmaxf(most, sink);
      exp_sum = power_of_two(sink - most);
    }
    float sum[kOfLane] = {};
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) {
      // A split without visible keys for this row has written no values.
      if (stats[c].x == -INFINITY) continue;
      const float share = power_of_two(stats[c].x - most);
      exp_sum += share * stats[c].y;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) sum[i] += share * value[c][i];
    }
    const float inverse = 1.0f / exp_sum;
    float* at = p.out + (task.span.first_token + token) * p.out_stride +
                static_cast<std::int64_t>(head) * Config::kDim + lane_index();
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) at[32 * i] = sum[i] * inverse;
  }
}

#endif

// Grid (KV splits, kv heads · query tiles, spans); the KV splits are a cluster.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    hopper_split_kernel(const __grid_constant__ AttentionParams p,
                        const __grid_constant__ CUtensorMap keys,
                        const __grid_constant__ CUtensorMap values) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(sizeof(HopperPartial<Config>) <= Config::kBytes - 1024);
  pdl_trigger();
  extern __shared__ std::byte raw[];
  __shared__ HopperBarriers<Config::kStages> barriers;
  const HopperTiles<Config> tiles(raw, barriers);
  HopperTask task;
  const auto column = static_cast<int>(blockIdx.y);
  // All CTAs of a cluster take the same branch.
  if (!find_task<Config::kRows>(p, column % p.kv_heads, column / p.kv_heads, task)) {
    pdl_wait();
    return;
  }
  take_kv_split(task);
  auto& part = *reinterpret_cast<HopperPartial<Config>*>(tiles.shared);
  if (threadIdx.x < 128) {
    if (threadIdx.x == 0) produce_tiles(p, task, tiles, &keys, &values);
    pdl_wait();
    __syncwarp();
  } else {
    pdl_wait();
    HopperRows<Config> rows(p, task, tiles, nullptr);
    const bool has_keys = task.begin < task.end;
    if (has_keys) rows.attend();
    // All consumer warps have read the last tile, so its memory can be reused.
    asm volatile("bar.sync 1, %0;" ::"n"(Config::kConsumerThreads) : "memory");
    store_partial(rows, has_keys, part);
  }
  cluster_arrive();
  cluster_wait();
  combine_partials(p, task, part);
  // No CTA ends while others may still read its shared memory.
  cluster_arrive();
  cluster_wait();
#endif
}

}  // namespace bl::cuda
