#pragma once
// How a product of many rows (gemm_wgmma_dequant.cu) is cut among CTAs.
//
// A CTA stays on its multiprocessor and goes from tile to tile in steps of 64 slots: 128 columns of
// a matrix × 256 rows, or 256 × 64 or × 32 where there are few rows (WgmmaShape). Of its first
// warpgroup one warp asks for the rows that the next steps need, one for their codes; two make
// scales, a unit of a step each. The other warpgroups have 64 columns each, a strip a warp: columns
// are the rows of the tensor cores' operand A, which is decoded in registers while the products of
// the step before run. Two CTAs of large tiles are a cluster: their tiles are of the same rows, of
// which each asks for half, for both. Where there are fewer tiles than would fill the card, the
// slots are cut in parts, whose results lie beside one another until they are added up, in their
// order. Where gate and up become one row (WgmmaActivation), half of a tile's columns are of each.

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"
#include "backend/cuda/gemm/wgmma/operand_a.cuh"

namespace bl::cuda {

inline constexpr int kTileAlignment = 1024;  // of rows in shared memory
inline constexpr int kMaxWgmmaStages = 8;

// Of few rows a product is bound by decoding, not by the tensor cores: more warps decode, and the
// fewer rows the tensor cores have, the less they take from them (bench/ladder/prefill).
template <int kTileRows>
struct WgmmaShape {
  static_assert(kTileRows == 256 || kTileRows == 64 || kTileRows == 32);
  static constexpr bool kLarge = kTileRows == 256;
  static constexpr int kRows = kTileRows;
  static constexpr int kConsumers = kLarge ? 2 : 4;   // warpgroups that multiply
  static constexpr int kNTiles = 4 * kConsumers;      // a warp each
  static constexpr int kCluster = kLarge ? 2 : 1;     // CTAs
  static constexpr int kIterKTiles = kLarge ? 1 : 2;  // that a place of the ring has
  static constexpr int kIterKSteps = kIterKTiles * kKTileKSteps;
  // Of a step: the 128 bytes of a row that the copy engine swizzles over.
  static constexpr int kStepBytes = kRows * kKTileKSteps * kKStepSize * 2;
  static constexpr int kRowsBytes = kIterKTiles * kStepBytes;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  // Of a thread: of the first warpgroup, and of those that multiply.
  static constexpr int kFewRegisters = kLarge ? 40 : 56;
  static constexpr int kManyRegisters = kLarge ? 232 : 104;
};

struct WgmmaLaunch {
  WgmmaArgs args;
  int first_tiles[kMaxMatrices + 1] = {};  // of columns; the last: of all
  int tile_n_tiles = 0;                    // of a matrix
  int row_tiles = 0;
  int cluster_tiles = 0;  // of all clusters
  int k_iters = 0;        // of places of the ring, for a tile
  int k_splits = 1;       // of these
  int stages = 0;
  int n_tile_room = 0;                // bytes of a strip's codes of a fill
  int scales_at = 0;                  // of all units, behind rows and codes of all strips
  int stage_bytes = 0;                // of all that
  std::uint32_t low_bits = kLowBits;  // see KTileDecoder
  std::uint32_t high_bits = kHighBits;
  int stores_at = 0;  // in shared memory, store_bytes of each warp that multiplies
  int store_bytes = 0;
  int tables_at = 0;  // KStepTables of the matrices
};

struct WgmmaBarriers {
  std::uint64_t full[kMaxWgmmaStages];
  std::uint64_t empty[kMaxWgmmaStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class Shape>
__device__ __forceinline__ int cta_in_cluster() {
  return static_cast<int>(blockIdx.x) % Shape::kCluster;
}

// A CTA's tile: where its parts come from, and which of the slots are its own.
template <class Shape>
struct WgmmaTile {
  int matrix;
  int first_n_tile;  // behind the last where there is no tile for this CTA; of gate and of up
  int first_row;
  int k_split;
  int first_k_iter;
  int k_iters;

  // Where strip `strip` of the tile comes from. kPaired: the matrices are gate and up.
  template <bool kPaired>
  __device__ __forceinline__ int matrix_of(int n_tile) const {
    return kPaired ? n_tile / (Shape::kNTiles / 2) : matrix;
  }
  template <bool kPaired>
  __device__ __forceinline__ int n_tile_of(int n_tile) const {
    return kPaired ? first_n_tile + n_tile % (Shape::kNTiles / 2) : first_n_tile + n_tile;
  }

  // `number`: of the cluster's tiles.
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

// f(tile) for all of the CTA's.
template <class Shape, class F>
__device__ __forceinline__ void for_each_tile(const WgmmaLaunch& launch, const F& f) {
  const int first = static_cast<int>(blockIdx.x) / Shape::kCluster;
  const int step = static_cast<int>(gridDim.x) / Shape::kCluster;
  for (int number = first; number < launch.cluster_tiles; number += step) {
    f(WgmmaTile<Shape>(launch, number));
  }
}

// Places in the ring go round.
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
  return {memory + launch.tables_at + matrix * KStepTable::bytes(k_steps), k_steps};
}

#endif

}  // namespace bl::cuda
