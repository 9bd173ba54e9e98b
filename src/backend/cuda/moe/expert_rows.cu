// Sorts the choices of a call by expert, and adds up the experts' results.

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/moe/expert_kernels.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 8;  // loads of a lane in flight

__device__ __forceinline__ bool exists(const ExpertRows& rows, int expert) {
  return static_cast<unsigned>(expert) < static_cast<unsigned>(rows.expert_count);
}

// One warp turns counts into first rows, and fills the tables of blocks.
__device__ void lay_out_blocks(const ExpertRows& rows, int* counts, int lane) {
  int before = 0;  // blocks
  for (int base = 0; base < rows.expert_count; base += 32) {
    const int expert = base + lane;
    const int count = expert < rows.expert_count ? counts[expert] : 0;
    const int blocks = (count + rows.block_rows - 1) / rows.block_rows;
    int end = blocks;  // of this expert, among the 32
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int lower = __shfl_up_sync(kAllLanes, end, distance);
      if (lane >= distance) end += lower;
    }
    const int first = before + end - blocks;
    for (int b = 0; b < blocks; ++b) {
      rows.expert_of_block[first + b] = expert;
      rows.rows_of_block[first + b] = min(count - b * rows.block_rows, rows.block_rows);
    }
    if (expert < rows.expert_count) counts[expert] = first * rows.block_rows;
    before += __shfl_sync(kAllLanes, end, 31);
  }
  for (int b = before + lane; b < rows.blocks; b += 32) {
    rows.expert_of_block[b] = -1;
    rows.rows_of_block[b] = 0;
  }
}

// One warp gives each choice its expert's next row, in the order of the choices.
__device__ void place_choices(const ExpertRows& rows, int* next_row, int lane) {
  for (int base = 0; base < rows.choices; base += 32 * kAhead) {
    int experts[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int choice = base + 32 * u + lane;
      experts[u] = choice < rows.choices ? rows.experts[choice] : -1;
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int choice = base + 32 * u + lane;
      const bool live = exists(rows, experts[u]);
      const unsigned equal = __match_any_sync(kAllLanes, live ? experts[u] : -1);
      const int rank = __popc(equal & ((1u << lane) - 1u));
      const int row = live ? next_row[experts[u]] + rank : -1;
      __syncwarp();
      if (live && rank == 0) next_row[experts[u]] = row + __popc(equal);
      __syncwarp();
      if (choice < rows.choices) rows.row_of_choice[choice] = row;
      if (live) rows.choice_of_row[row] = choice;
    }
  }
}

// One CTA. A choice always gets the same row, in whatever order threads run.
__global__ void __launch_bounds__(kThreads) sort_choices_kernel(ExpertRows rows) {
  extern __shared__ int counts[];  // [experts]
  pdl_trigger();
  for (int e = static_cast<int>(threadIdx.x); e < rows.expert_count; e += kThreads) counts[e] = 0;
  __syncthreads();
  pdl_wait();
  for (int c = static_cast<int>(threadIdx.x); c < rows.choices; c += kThreads) {
    const int expert = rows.experts[c];
    if (exists(rows, expert)) atomicAdd(counts + expert, 1);
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const int lane = lane_index();
  lay_out_blocks(rows, counts, lane);
  __syncwarp();
  place_choices(rows, counts, lane);
}

__global__ void __launch_bounds__(kThreads) sum_experts_kernel(ExpertSumArgs p) {
  pdl_trigger();
  pdl_wait();
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (column >= p.columns) return;
  const int token = static_cast<int>(blockIdx.y);
  const std::int32_t* row_of_choice = p.rows.row_of_choice + token * p.rows.k;
  const float* weights = p.rows.weights + token * p.rows.weight_stride;
  float* out = p.out + token * p.out_stride + column;
  float sum = *out;
#pragma unroll 4
  for (int j = 0; j < p.rows.k; ++j) {
    const int row = row_of_choice[j];
    if (row < 0) continue;
    const float y = p.y[row * p.y_stride + column];
    sum = p.weigh ? fmaf(weights[j], y, sum) : sum + y;
  }
  *out = sum;
}

}  // namespace

void sort_choices(ExecContext& ctx, const ExpertRows& rows) {
  const std::size_t shared = static_cast<std::size_t>(rows.expert_count) * sizeof(int);
  launch(shape_of(ctx, 1, kThreads, shared), sort_choices_kernel, rows);
}

void sum_experts(ExecContext& ctx, const ExpertSumArgs& args) {
  const dim3 grid(static_cast<unsigned>((args.columns + kThreads - 1) / kThreads),
                  static_cast<unsigned>(args.rows.choices / args.rows.k));
  launch(shape_of(ctx, grid, kThreads), sum_experts_kernel, args);
}

}  // namespace bl::cuda
