#pragma once
// Tiles and pipeline stages of the wgmma GEMM as its warps walk over them; wgmma_plan.h says how a
// launch is divided into them.

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/gemm/wgmma/operand_a.cuh"
#include "backend/cuda/gemm/wgmma/wgmma_plan.h"

namespace bl::cuda {

struct WgmmaBarriers {
  std::uint64_t full[kMaxWgmmaStages];
  std::uint64_t empty[kMaxWgmmaStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class Shape>
__device__ __forceinline__ int cta_in_cluster() {
  return static_cast<int>(blockIdx.x) % Shape::kCluster;
}

// A tile of a CTA: its matrix, n_tiles, rows, and its range of K.
template <class Shape>
struct WgmmaTile {
  int matrix;
  // In the matrix (of gate and of up, if paired); beyond the last n_tile if this CTA has no tile.
  int first_n_tile;
  int first_row;
  int k_split;
  int first_k_iter;
  int k_iters;

  // The matrix and the n_tile of n_tile `n_tile` of the tile. kPaired: the matrices are gate and
  // up.
  template <bool kPaired>
  __device__ __forceinline__ int matrix_of(int n_tile) const {
    return kPaired ? n_tile / (Shape::kNTiles / 2) : matrix;
  }
  template <bool kPaired>
  __device__ __forceinline__ int n_tile_of(int n_tile) const {
    return kPaired ? first_n_tile + n_tile % (Shape::kNTiles / 2) : first_n_tile + n_tile;
  }

  // `number`: index among the tiles of all clusters.
  __device__ __forceinline__ WgmmaTile(const WgmmaLaunch& launch, int number) {
    k_split = number % launch.k_splits;
    number /= launch.k_splits;
    first_k_iter = launch.k_iters * k_split / launch.k_splits;
    k_iters = launch.k_iters * (k_split + 1) / launch.k_splits - first_k_iter;
    const int column_tile = number / launch.row_tiles * Shape::kCluster + cta_in_cluster<Shape>();
    first_row = number % launch.row_tiles * Shape::kRows;
    matrix = 0;
#pragma unroll
    for (int i = 1; i < kMaxMatrices; ++i) {
      if (i < launch.args.count && column_tile >= launch.first_tiles[i]) matrix = i;
    }
    first_n_tile = (column_tile - launch.first_tiles[matrix]) * launch.tile_n_tiles;
  }
};

// Calls f(tile) for every tile of the CTA.
template <class Shape, class F>
__device__ __forceinline__ void for_each_tile(const WgmmaLaunch& launch, const F& f) {
  const int first = static_cast<int>(blockIdx.x) / Shape::kCluster;
  const int step = static_cast<int>(gridDim.x) / Shape::kCluster;
  for (int number = first; number < launch.cluster_tiles; number += step) {
    f(WgmmaTile<Shape>(launch, number));
  }
}

// Stages are used in a ring.
struct PipelineStage {
  int index = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void next(int stages) {
    if (++index < stages) return;
    index = 0;
    phase ^= 1u;
  }
};

__device__ __forceinline__ KStepTable table_of(const WgmmaLaunch& launch, const std::byte* memory,
                                               int matrix) {
  const int k_steps = launch.args.matrices[0].view.k_steps;
  return {memory + launch.tables_at + matrix * k_step_table_bytes(k_steps), k_steps};
}

#endif

}  // namespace bl::cuda
