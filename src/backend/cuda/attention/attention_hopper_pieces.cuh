#pragma once
// The kernel for compute capability 9.0 of a few tokens behind a long past: a cluster has a tile of
// query rows, each of its CTAs a piece of the keys that they see. What is old of a piece is on its
// way before the kernel before has ended.

#include "backend/cuda/attention/attention_hopper_kernel.cuh"
#include "backend/cuda/attention/attention_join.cuh"

namespace bl::cuda {

template <int kDim>
using HopperPieceRoom = HopperRoom<kDim, 1, 3>;

// The sums of a CTA's rows, where the others of its cluster read them: in the room of its tiles.
template <class Room>
struct HopperPart {
  static constexpr int kStride = Room::kDim + 8;  // four rows have banks of their own
  float values[Room::kRows][kStride];
  float2 tops[Room::kRows];  // largest score, sum of weights
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Piece blockIdx.x of the task's keys; the last ones may be without.
__device__ __forceinline__ void take_piece(HopperTask& task) {
  const auto pieces = static_cast<int>(gridDim.x);
  const int even = (task.end - task.begin + pieces - 1) / pieces;
  const int keys = (even + kHopperKeys - 1) / kHopperKeys * kHopperKeys;
  task.begin += static_cast<int>(blockIdx.x) * keys;
  task.end = min(task.begin + keys, task.end);
}

template <class Room>
__device__ __forceinline__ void leave_part(HopperRows<Room>& rows, bool has_keys,
                                           HopperPart<Room>& part) {
  const int lane = lane_index();
  if (!has_keys) {
    const auto row = static_cast<int>(threadIdx.x) - 128;
    if (row < Room::kRows) part.tops[row] = make_float2(-INFINITY, 0.0f);
    return;
  }
  rows.each_sum([&](int row, float top, float weight, const auto& values) {
    if (lane % 4 == 0) part.tops[row] = make_float2(top, weight);
#pragma unroll
    for (int n = 0; n < Room::kDim / 8; ++n) {
      *reinterpret_cast<float2*>(part.values[row] + 8 * n + 2 * (lane & 3)) = values(n);
    }
  });
}

// The cluster's parts → results: rows go round the CTAs, then their warps.
template <class Room>
__device__ __forceinline__ void join_parts(const AttentionParams& p, const HopperTask& task,
                                           const HopperPart<Room>& own) {
  constexpr int kOfLane = Room::kDim / 32;
  const auto pieces = static_cast<int>(gridDim.x);
  const std::uint32_t tops = shared_address(own.tops);
  const std::uint32_t values = shared_address(own.values);
  const int rows = min(task.span.tokens * p.group - task.first_row, Room::kRows);
#pragma unroll 1
  for (int row = static_cast<int>(blockIdx.x) + pieces * warp_index(); row < rows;
       row += pieces * Room::kThreads / 32) {
    float2 top[kMostClusterCtas];
    float value[kMostClusterCtas][kOfLane];
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) {
      top[c] = make_float2(-INFINITY, 0.0f);
      if (c >= pieces) continue;
      asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                   : "=f"(top[c].x), "=f"(top[c].y)
                   : "r"(of_cta(tops + row * 8, c)));
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int e = 32 * i + lane_index();
        asm volatile("ld.shared::cluster.f32 %0, [%1];"
                     : "=f"(value[c][i])
                     : "r"(of_cta(values + (row * HopperPart<Room>::kStride + e) * 4, c)));
      }
    }
    float most = -INFINITY;
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) most = fmaxf(most, top[c].x);
    const int token = (task.first_row + row) / p.group;
    const int head = task.kv_head * p.group + task.first_row + row - token * p.group;
    float weight = 0.0f;
    if (p.sinks != nullptr) {
      const float sink = p.sinks[head] * kLog2E;
      most = fmaxf(most, sink);
      weight = power_of_two(sink - most);
    }
    float sum[kOfLane] = {};
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) {
      // A piece without keys of this row has left no sums.
      if (top[c].x == -INFINITY) continue;
      const float share = power_of_two(top[c].x - most);
      weight += share * top[c].y;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) sum[i] += share * value[c][i];
    }
    const float inverse = 1.0f / weight;
    float* at = p.out + (task.span.first_token + token) * p.out_stride +
                static_cast<std::int64_t>(head) * Room::kDim + lane_index();
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) at[32 * i] = sum[i] * inverse;
  }
}

#endif

// Grid (pieces, kv heads · row tiles, spans), the pieces a cluster.
template <class Room>
__global__ void __launch_bounds__(Room::kThreads, 1)
    hopper_pieces_kernel(const __grid_constant__ AttentionParams p,
                         const __grid_constant__ CUtensorMap keys,
                         const __grid_constant__ CUtensorMap values) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(sizeof(HopperPart<Room>) <= Room::kBytes - 1024);
  pdl_trigger();
  extern __shared__ std::byte raw[];
  __shared__ HopperBarriers<Room::kStages> barriers;
  const HopperTiles<Room> tiles(raw, barriers);
  HopperTask task;
  const auto column = static_cast<int>(blockIdx.y);
  // The same for all of a cluster.
  if (!find_task<Room::kRows>(p, column % p.kv_heads, column / p.kv_heads, task)) {
    pdl_wait();
    return;
  }
  take_piece(task);
  auto& part = *reinterpret_cast<HopperPart<Room>*>(tiles.shared);
  if (threadIdx.x < 128) {
    if (threadIdx.x == 0) fetch_tiles(p, task, tiles, &keys, &values);
    pdl_wait();
    __syncwarp();
  } else {
    pdl_wait();
    HopperRows<Room> rows(p, task, tiles, nullptr);
    const bool has_keys = task.begin < task.end;
    if (has_keys) rows.attend();
    // All have read the last tile.
    asm volatile("bar.sync 1, %0;" ::"n"(Room::kReaders) : "memory");
    leave_part(rows, has_keys, part);
  }
  cluster_arrive();
  cluster_wait();
  join_parts(p, task, part);
  // None leaves while another may read of it.
  cluster_arrive();
  cluster_wait();
#endif
}

}  // namespace bl::cuda
