#pragma once
// The tiles of a grouped wgmma GEMM, and its producer warps: warp 0 copies activations, warp 1
// codes, and warps 2 and 3 make scales and the headers of stages.

#include <cuda.h>

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/cluster.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/wgmma/tiles.cuh"
#include "backend/cuda/gemm/wgmma/wgmma_grouped_plan.h"

namespace bl::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A tile of a CTA.
template <class Shape>
struct GroupedTile {
  int group;
  int first_n_tile;  // in the matrix (of gate and of up, if paired); may be beyond the last one
  int first_row;
  int rows;

  // `number`: index among the tiles of all clusters. The row tiles of a group take turns, so that
  // clusters that run together read the same codes.
  __device__ __forceinline__ GroupedTile(const WgmmaGroupedLaunch& launch, int number) {
    const auto* at =
        reinterpret_cast<const int4*>(launch.args.row_tiles + number / launch.column_tiles);
    const int4 a = __ldcg(at);
    const int rows_of_group = __ldcg(&at[1].x);
    group = a.x;
    const int own = number - a.y * launch.column_tiles;
    first_n_tile = (own / a.z * Shape::kCluster + cta_in_cluster<Shape>()) * launch.tile_n_tiles;
    const int before = own % a.z * Shape::kRows;
    first_row = a.w + before;
    rows = min(rows_of_group - before, Shape::kRows);
  }
  __device__ __forceinline__ const CodeMatrixView& view(const WgmmaGroupedLaunch& launch,
                                                        int matrix) const {
    return *reinterpret_cast<const CodeMatrixView*>(launch.args.views[matrix] +
                                                    std::int64_t{group} * launch.args.view_stride);
  }
};

template <class Shape>
__device__ __forceinline__ int k_iters_of(int k_steps) {
  return (k_steps + Shape::kIterKSteps - 1) / Shape::kIterKSteps;
}

// Returns the number of tiles of all clusters. Requires pdl_wait().
__device__ __forceinline__ int cluster_tiles_of(const WgmmaGroupedLaunch& launch) {
  return __ldcg(launch.args.row_tile_count) * launch.column_tiles;
}

// Calls f(tile) for every tile of the CTA.
template <class Shape, class F>
__device__ __forceinline__ void for_each_grouped_tile(const WgmmaGroupedLaunch& launch,
                                                      const F& f) {
  const int step = static_cast<int>(gridDim.x) / Shape::kCluster;
  const int tiles = cluster_tiles_of(launch);
  for (int i = static_cast<int>(blockIdx.x) / Shape::kCluster; i < tiles; i += step) {
    f(GroupedTile<Shape>(launch, i));
  }
}

// The matrix and the n_tile of n_tile `n_tile` of a tile.
template <class Shape, bool kPaired>
__device__ __forceinline__ int grouped_matrix_of(int n_tile) {
  return kPaired ? n_tile / (Shape::kNTiles / 2) : 0;
}
template <class Shape, bool kPaired>
__device__ __forceinline__ int grouped_n_tile_of(int n_tile) {
  return kPaired ? n_tile % (Shape::kNTiles / 2) : n_tile;
}

// Warp 0: activations by TMA, each CTA of a cluster half of the rows for all.
template <class Shape>
__device__ __forceinline__ void produce_grouped_rows(const WgmmaGroupedLaunch& launch,
                                                     const CUtensorMap& rows, std::byte* memory,
                                                     WgmmaBarriers& barriers) {
  if (lane_index() != 0) return;
  constexpr int kOwnRows = Shape::kRows / Shape::kCluster;
  static_assert(Shape::kIterKTiles == 1);
  const int own = cta_in_cluster<Shape>();
  std::byte* to = memory + own * (Shape::kKTileBytes / Shape::kCluster);
  PipelineStage stage;
  for_each_grouped_tile<Shape>(launch, [&](const GroupedTile<Shape>& tile) {
    const int k_iters = k_iters_of<Shape>(tile.view(launch, 0).k_steps);
    for (int k_iter = 0; k_iter < k_iters; ++k_iter) {
      std::uint64_t* full = &barriers.full[stage.index];
      barrier_wait(&barriers.empty[stage.index], stage.phase ^ 1u);
      barrier_expect(full, Shape::kRowsBytes);
      tensor_copy_to_all(to + stage.index * launch.stage_bytes, &rows,
                         {k_iter * kKTileKSteps * kKStepSize, tile.first_row + own * kOwnRows},
                         full, (1u << Shape::kCluster) - 1);
      stage.next(launch.stages);
    }
  });
}

// Warp 1: codes by cp.async, with several lanes an n_tile, as in produce_codes().
template <class Shape, bool kPaired>
__device__ __forceinline__ void produce_grouped_codes(const WgmmaGroupedLaunch& launch,
                                                      std::byte* memory, WgmmaBarriers& barriers) {
  constexpr int kLanes = 32 / Shape::kNTiles;  // of an n_tile
  const int n_tile = lane_index() / kLanes;
  const int first = lane_index() % kLanes * 16;
  std::byte* to = memory + Shape::kRowsBytes + n_tile * launch.n_tile_room + first;
  PipelineStage stage;
  for_each_grouped_tile<Shape>(launch, [&](const GroupedTile<Shape>& tile) {
    const CodeMatrixView& m = tile.view(launch, grouped_matrix_of<Shape, kPaired>(n_tile));
    const int k_steps = m.k_steps;
    const int k_iters = k_iters_of<Shape>(k_steps);
    const KStepEntry* entry = KStepTable(m.k_step_table, k_steps).entries;
    // Warps without an n_tile multiply the last one's codes.
    const int own =
        min(tile.first_n_tile + grouped_n_tile_of<Shape, kPaired>(n_tile), m.n_tiles - 1);
    const std::byte* codes = m.codes + own * m.n_tile_bytes + first;
    std::uint32_t from = 0;
    std::uint32_t next = __ldg(&entry[Shape::kIterKSteps].offset);
    for (int k_iter = 0; k_iter < k_iters; ++k_iter) {
      const std::uint32_t end = next * 64;
      entry += Shape::kIterKSteps;
      if (k_iter + 1 < k_iters) next = __ldg(&entry[Shape::kIterKSteps].offset);
      std::byte* stage_data = to + stage.index * launch.stage_bytes;
      barrier_wait(&barriers.empty[stage.index], stage.phase ^ 1u);
#pragma unroll 4
      for (; from < end; from += kLanes * 16) {
        copy_small(stage_data, codes + from);
        stage_data += kLanes * 16;
      }
      barrier_arrive_behind_copies(&barriers.full[stage.index]);
      stage.next(launch.stages);
    }
  });
}

__device__ __forceinline__ KStepEntry load_k_step(const KStepEntry* from) {
  KStepEntry entry;
  *reinterpret_cast<uint4*>(&entry) = __ldg(reinterpret_cast<const uint4*>(from));
  return entry;
}

// Warps 2 and 3: the scales of k_step `u` of each k_tile; warp 2 also writes the headers.
template <class Shape, bool kGptq, bool kPaired>
__device__ __forceinline__ void produce_grouped_scales(const WgmmaGroupedLaunch& launch,
                                                       std::byte* memory, WgmmaBarriers& barriers,
                                                       int u) {
  using Producer = ScaleProducer<kGptq, Shape::kNTiles>;
  static_assert(Shape::kNTiles == Producer::kNTilesAtOnce && Shape::kIterKTiles == 1);
  const int own = lane_index() / 4;  // n_tile of the tile
  const int matrix = grouped_matrix_of<Shape, kPaired>(own);
  PipelineStage stage;
  Producer producer;
  for_each_grouped_tile<Shape>(launch, [&](const GroupedTile<Shape>& tile) {
    const CodeMatrixView view = tile.view(launch, matrix);
    const int k_iters = k_iters_of<Shape>(view.k_steps);
    if (u == 0) {
#pragma unroll
      for (int i = 0; i < (kPaired ? 2 : 1); ++i) {
        prefetch_scales(tile.view(launch, i), tile.first_n_tile, launch.tile_n_tiles);
      }
    }
    const KStepTable table(view.k_step_table, view.k_steps);
    const KStepEntry* at = table.entries + u;
    KStepEntry entry = load_k_step(at);
    producer.open(view, tile.first_n_tile + grouped_n_tile_of<Shape, kPaired>(own), own);
    producer.load(entry.group);
    for (int k_iter = 0; k_iter < k_iters; ++k_iter) {
      at += kKTileKSteps;
      const KStepEntry next = load_k_step(at);
      const std::uint32_t widths = u == 0 ? __ldg(table.widths + k_iter) : 0;
      std::byte* stage_data = memory + stage.index * launch.stage_bytes;
      auto* to =
          reinterpret_cast<StageScales<kGptq, Shape::kNTiles>*>(stage_data + launch.scales_at);
      barrier_wait(&barriers.empty[stage.index], stage.phase ^ 1u);
      if (entry.bits != 0) producer.make(entry, to[u]);
      if (u == 0) {
        auto& header =
            *reinterpret_cast<WgmmaStageHeader*>(stage_data + launch.scales_at - kStageHeaderBytes);
        if (lane_index() % 16 == 0) header.widths[lane_index() / 16] = widths;
        if (lane_index() == 0) {
          header.k_iters = k_iters;
          *reinterpret_cast<int4*>(&header.first_row) = {tile.first_row, tile.rows,
                                                         tile.first_n_tile, 0};
        }
      }
      barrier_arrive(&barriers.full[stage.index]);
      if (next.group != entry.group) producer.load(next.group);
      entry = next;
      stage.next(launch.stages);
    }
  });
}

#endif

}  // namespace bl::cuda
