// Sorts the choices of a call by expert, and adds up the experts' results.

#include <algorithm>

#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/moe/expert_kernels.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostSortThreads = 1024;
constexpr int kAhead = 8;  // loads of a lane in flight

// One warp turns counts into first rows, and fills the tables of blocks.
__device__ void lay_out_blocks(const ExpertRows& rows, int* counts, int lane) {
  int before = 0;  // blocks
  for (int base = 0; base < rows.expert_count; base += 32) {
    const int expert = base + lane;
    const int count = expert < rows.expert_count ? counts[expert] : 0;
    const int blocks = (count + rows.block_rows - 1) / rows.block_rows;
    const int end = warp_prefix_sum(blocks);
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
  if (lane == 0) *rows.live_blocks = before;
}

// One warp turns counts into first rows without padding, and fills the table of row tiles.
__device__ void lay_out_row_tiles(const ExpertRows& rows, int* counts, int lane) {
  int rows_before = 0;
  int tiles_before = 0;
  for (int base = 0; base < rows.expert_count; base += 32) {
    const int expert = base + lane;
    const int count = expert < rows.expert_count ? counts[expert] : 0;
    const int tiles = (count + rows.tile_rows - 1) / rows.tile_rows;
    const int rows_end = warp_prefix_sum(count);
    const int tiles_end = warp_prefix_sum(tiles);
    WgmmaRowTile tile;
    tile.group = expert;
    tile.first_tile = tiles_before + tiles_end - tiles;
    tile.tiles = tiles;
    tile.first_row = rows_before + rows_end - count;
    tile.rows = count;
    for (int i = 0; i < tiles; ++i) rows.row_tiles[tile.first_tile + i] = tile;
    if (expert < rows.expert_count) counts[expert] = tile.first_row;
    rows_before += __shfl_sync(kAllLanes, rows_end, 31);
    tiles_before += __shfl_sync(kAllLanes, tiles_end, 31);
  }
  if (lane == 0) {
    *rows.row_tile_count = tiles_before;
    *rows.live_rows = rows_before;
  }
}

// One warp gives each choice of [begin, end) its expert's next row, in the order of the choices.
// `next_row` counts from `first_row` of the expert.
__device__ void place_choices(const ExpertRows& rows, int begin, int end, const int* first_row,
                              int* next_row) {
  const int lane = lane_index();
  for (int base = begin; base < end; base += 32 * kAhead) {
    int experts[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int choice = base + 32 * u + lane;
      experts[u] = choice < end ? rows.experts[choice] : -1;
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (base + 32 * u >= end) break;
      const int choice = base + 32 * u + lane;
      const bool live = exists(rows, experts[u]);
      const unsigned equal = __match_any_sync(kAllLanes, live ? experts[u] : -1);
      const int rank = __popc(equal & ((1u << lane) - 1u));
      const int next = live ? next_row[experts[u]] + rank : 0;
      __syncwarp();
      if (live && rank == 0) next_row[experts[u]] = next + __popc(equal);
      __syncwarp();
      const int row = live ? first_row[experts[u]] + next : -1;
      if (choice < end) rows.row_of_choice[choice] = row;
      if (live) rows.choice_of_row[row] = choice;
    }
  }
}

// One CTA, whose warps sort consecutive parts of the choices. A choice always gets the same row, in
// whatever order threads run. Shared memory: first rows, then each warp's counts, [experts] each.
__global__ void __launch_bounds__(kMostSortThreads)
    sort_choices_kernel(const __grid_constant__ ExpertRows rows) {
  extern __shared__ int first_rows[];
  pdl_trigger();
  const int count = rows.expert_count;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const int warps = threads / 32;
  int* counts = first_rows + count;  // of all warps
  int* own = counts + warp_index() * count;
  for (int i = thread; i < warps * count; i += threads) counts[i] = 0;
  __syncthreads();
  pdl_wait();
  const int part = (rows.choices + threads - 1) / threads * 32;
  const int begin = warp_index() * part;
  const int end = min(begin + part, rows.choices);
#pragma unroll 8
  for (int c = begin + lane_index(); c < end; c += 32) {
    const int expert = rows.experts[c];
    if (exists(rows, expert)) atomicAdd(own + expert, 1);
  }
  __syncthreads();
  for (int e = thread; e < count; e += threads) {
    int before = 0;
    for (int w = 0; w < warps; ++w) {
      const int mine = counts[w * count + e];
      counts[w * count + e] = before;
      before += mine;
    }
    first_rows[e] = before;
  }
  __syncthreads();
  if (warp_index() == 0) {
    if (rows.row_tiles != nullptr) {
      lay_out_row_tiles(rows, first_rows, lane_index());
    } else {
      lay_out_blocks(rows, first_rows, lane_index());
    }
  }
  __syncthreads();
  place_choices(rows, begin, end, first_rows, own);
}

// kPack columns a thread.
template <int kPack>
__global__ void __launch_bounds__(kThreads)
    sum_experts_kernel(const __grid_constant__ ExpertSumArgs p) {
  pdl_trigger();
  pdl_wait();
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kPack;
  if (column >= p.columns) return;
  const int token = static_cast<int>(blockIdx.y);
  const float* weights = p.rows.weights + token * p.rows.weight_stride;
  float* out = p.out + token * p.out_stride + column;
  auto sum = load_pack<kPack>(out);
#pragma unroll 4
  for (int j = 0; j < p.rows.k; ++j) {
    const int row = row_of_choice(p.rows, token * p.rows.k + j);
    if (row < 0) continue;
    auto y = load_pack<kPack>(p.y + row * p.y_stride + column);
    const float scale = p.row_scales != nullptr ? p.row_scales[row] : 1.0f;
    const float* bias =
        p.down != nullptr ? p.down[p.rows.experts[token * p.rows.k + j]].bias : nullptr;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      y.at[i] *= scale;
      if (bias != nullptr) y.at[i] += bias[column + i];
      sum.at[i] = p.weigh ? fmaf(weights[j], y.at[i], sum.at[i]) : sum.at[i] + y.at[i];
    }
  }
  store_pack(out, sum);
}

// Warps that sort, as many as have room for their counts.
int sort_warps(const ExpertRows& rows) {
  constexpr int kRoom = 48 << 10;
  constexpr int kChoicesPerWarp = 128;
  const auto bytes = static_cast<int>(static_cast<std::size_t>(rows.expert_count) * sizeof(int));
  return std::clamp(std::min(kRoom / bytes - 1, rows.choices / kChoicesPerWarp), 1,
                    kMostSortThreads / 32);
}

}  // namespace

void sort_choices(ExecContext& ctx, const ExpertRows& rows) {
  const int warps = sort_warps(rows);
  const std::size_t shared = static_cast<std::size_t>(warps + 1) *
                             static_cast<std::size_t>(rows.expert_count) * sizeof(int);
  launch(shape_of(ctx, 1, dim3(static_cast<unsigned>(warps * 32)), shared), sort_choices_kernel,
         rows);
}

void sum_experts(ExecContext& ctx, const ExpertSumArgs& args) {
  const bool fours = args.columns % 4 == 0 && args.y_stride % 4 == 0 && args.out_stride % 4 == 0 &&
                     is_aligned(args.y, 16) && is_aligned(args.out, 16);
  with_pack_size(fours, [&]<int kPack>(std::integral_constant<int, kPack>) {
    const int threads = kThreads * kPack;
    const dim3 grid(static_cast<unsigned>((args.columns + threads - 1) / threads),
                    static_cast<unsigned>(args.rows.choices / args.rows.k));
    launch(shape_of(ctx, grid, kThreads), sum_experts_kernel<kPack>, args);
  });
}

}  // namespace bl::cuda
