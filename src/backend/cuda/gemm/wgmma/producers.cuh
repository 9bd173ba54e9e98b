#pragma once
// The producer warpgroup of the wgmma GEMM: warp 0 copies activations, warp 1 codes, and warps 2
// and 3 make the scales of the first and the second k_step of each k_tile.

#include <cuda.h>

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/cluster.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/wgmma/tiles.cuh"

namespace bl::cuda {

// Tensor maps of the activations of each matrix.
struct RowMaps {
  CUtensorMap of[kMaxMatrices];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Warp 0: activations by TMA, each CTA of a cluster half of the rows for all.
template <class Shape>
__device__ __forceinline__ void produce_rows(const WgmmaLaunch& launch, const RowMaps& maps,
                                             std::byte* memory, WgmmaBarriers& barriers) {
  if (lane_index() != 0) return;
  constexpr int kOwnRows = Shape::kRows / Shape::kCluster;
  const int own = cta_in_cluster<Shape>();
  std::byte* to = memory + own * (Shape::kKTileBytes / Shape::kCluster);
  PipelineStage stage;
  pdl_wait();
  for_each_tile<Shape>(launch, [&](const WgmmaTile<Shape>& tile) {
    const CUtensorMap* rows = &maps.of[tile.matrix];
    for (int k_iter = tile.first_k_iter; k_iter < tile.first_k_iter + tile.k_iters; ++k_iter) {
      std::uint64_t* full = &barriers.full[stage.index];
      barrier_wait(&barriers.empty[stage.index], stage.phase ^ 1u);
      barrier_expect(full, Shape::kRowsBytes);
#pragma unroll
      for (int s = 0; s < Shape::kIterKTiles; ++s) {
        const int k_tile = k_iter * Shape::kIterKTiles + s;
        tensor_copy_to_all(to + stage.index * launch.stage_bytes + s * Shape::kKTileBytes, rows,
                           {k_tile * kKTileKSteps * kKStepSize, tile.first_row + own * kOwnRows},
                           full, (1u << Shape::kCluster) - 1);
      }
      stage.next(launch.stages);
    }
  });
}

// Warp 1: codes by cp.async, with two or four lanes an n_tile. That takes some 50 instructions a
// k_tile of large tiles; a bulk copy an n_tile took 360, and everything waited for this warp.
template <class Shape, bool kPaired>
__device__ __forceinline__ void produce_codes(const WgmmaLaunch& launch, std::byte* memory,
                                              WgmmaBarriers& barriers) {
  constexpr int kLanes = 32 / Shape::kNTiles;  // of an n_tile
  const int n_tile = lane_index() / kLanes;
  const int first = lane_index() % kLanes * 16;
  std::byte* to = memory + Shape::kRowsBytes + n_tile * launch.n_tile_room + first;
  PipelineStage stage;
  for_each_tile<Shape>(launch, [&](const WgmmaTile<Shape>& tile) {
    const int matrix = tile.template matrix_of<kPaired>(n_tile);
    const CodeMatrixView& m = launch.args.matrices[matrix].view;
    const KStepTable table = table_of(launch, memory, matrix);
    // Warps without an n_tile multiply the last one's codes.
    const int own = min(tile.template n_tile_of<kPaired>(n_tile), m.n_tiles - 1);
    const std::byte* codes = m.codes + own * m.n_tile_bytes + first;
    std::uint32_t from = table.entries[tile.first_k_iter * Shape::kIterKSteps].offset * 64;
    for (int k_iter = tile.first_k_iter; k_iter < tile.first_k_iter + tile.k_iters; ++k_iter) {
      const std::uint32_t end = table.entries[(k_iter + 1) * Shape::kIterKSteps].offset * 64;
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

// Warps 2 and 3: the scales of k_step `u` of each k_tile.
template <class Shape, bool kGptq, bool kPaired>
__device__ __forceinline__ void produce_scales(const WgmmaLaunch& launch, std::byte* memory,
                                               WgmmaBarriers& barriers, int u) {
  using Producer = ScaleProducer<kGptq, Shape::kNTiles>;
  constexpr int kProducers = Shape::kNTiles / Producer::kNTilesAtOnce;
  // All producers of the warp use one table, unless their matrices differ.
  constexpr int kTables = kPaired ? kProducers : 1;
  const int n_tile = lane_index() / 4;  // of a producer's eight
  PipelineStage stage;
  Producer producers[kProducers];
  for_each_tile<Shape>(launch, [&](const WgmmaTile<Shape>& tile) {
    const KStepEntry* entries[kTables];
    int groups[kTables];
    if (u == 0) {
#pragma unroll
      for (int i = 0; i < (kPaired ? 2 : 1); ++i) {
        const CodeMatrixView& m = launch.args.matrices[kPaired ? i : tile.matrix].view;
        prefetch_scales(m, tile.first_n_tile, Shape::kNTiles / (kPaired ? 2 : 1));
      }
    }
#pragma unroll
    for (int i = 0; i < kProducers; ++i) {
      const int own = i * Producer::kNTilesAtOnce + n_tile;
      const int matrix = tile.template matrix_of<kPaired>(own);
      if (i < kTables) {
        entries[i] = table_of(launch, memory, matrix).entries;
        groups[i] = entries[i][tile.first_k_iter * Shape::kIterKSteps + u].group;
      }
      producers[i].open(launch.args.matrices[matrix].view, tile.template n_tile_of<kPaired>(own),
                        own);
      producers[i].load(groups[i % kTables]);
    }
    for (int k_iter = tile.first_k_iter; k_iter < tile.first_k_iter + tile.k_iters; ++k_iter) {
      auto* to = reinterpret_cast<StageScales<kGptq, Shape::kNTiles>*>(
          memory + stage.index * launch.stage_bytes + launch.scales_at);
      barrier_wait(&barriers.empty[stage.index], stage.phase ^ 1u);
#pragma unroll
      for (int k = u; k < Shape::kIterKSteps; k += kKTileKSteps) {
        const int k_step = k_iter * Shape::kIterKSteps + k;
#pragma unroll
        for (int i = 0; i < kProducers; ++i) {
          const KStepEntry& entry = entries[i % kTables][k_step];
          if (entry.bits != 0) producers[i].make(entry, to[k]);
        }
        if (k == Shape::kIterKSteps - kKTileKSteps + u) barrier_arrive(&barriers.full[stage.index]);
#pragma unroll
        for (int t = 0; t < kTables; ++t) {
          const int next = entries[t][k_step + kKTileKSteps].group;
          if (next != groups[t]) {
#pragma unroll
            for (int i = t; i < kProducers; i += kTables) producers[i].load(next);
          }
          groups[t] = next;
        }
      }
      stage.next(launch.stages);
    }
  });
}

#endif

}  // namespace bl::cuda
