#pragma once
// How the work of a persistent CTA is divided in the kernels of experts: an item is a few n_tiles
// of one matrix or two, and its warps share n_tiles and k_blocks. Host code.

#include <cstdint>

#include "backend/cuda/gemm/pipeline/pipeline_shape.h"

namespace bl::cuda {

// Copy_blocks in a stage of a single n_tile; stages of more n_tiles join fewer.
inline constexpr int kMostJoinedCopyBlocks = 6;

struct ItemShape {
  int warp_n_tiles = 1;  // of a warp: 1 or 3
  int groups = 1;        // of warps with different n_tiles
  int n_tiles() const { return warp_n_tiles * groups; }
  // Warps that share the k_blocks of the same n_tiles.
  int parts() const { return kConsumerWarps / groups; }
};

// The work of a launch.
struct ItemWork {
  int walks = 1;              // over K for each n_tile of an item: matrices, or experts
  std::int32_t k_steps = 0;   // of one walk
  std::int32_t k_blocks = 0;  // likewise
  std::int64_t rows = 0;      // blocks of rows that each have items of all n_tiles
  std::int64_t n_tiles = 0;   // of a result
};

// Returns the shape with which the busiest CTA has the fewest instructions. `wide`: warps may have
// three n_tiles.
ItemShape choose_item_shape(const ItemWork& work, int multiprocessors, bool wide);

}  // namespace bl::cuda
