#pragma once
// The experts of one layer as kernels see them: for host and device.

#include <cstdint>

#include "backend/cuda/gemm/wgmma/wgmma_grouped_plan.h"
#include "backend/cuda/layout/code_matrix.h"
#include "tensor/dtype.h"

namespace bl::cuda {

// One matrix of one expert, an entry of tables in device memory.
struct ExpertMatrix {
  CodeMatrixView view;                         // without codes: a plain matrix
  const std::int32_t* feature_of_k = nullptr;  // codes
  const void* rows = nullptr;                  // plain: [out, in]
  const float* bias = nullptr;                 // [out] or null
  DType type = DType::kF16;                    // plain: of `rows`
};

// Rows of a block: the token tile of mma.m16n8k16, or four of them where experts have many rows.
inline constexpr std::int32_t kSmallBlock = 8;
inline constexpr std::int32_t kLargeBlock = 32;

// The choices of a call, sorted by expert: choice c = t · k + j is the j-th expert of token t. Each
// expert's choices get rows in blocks of `block_rows` of its own, so that a block has one expert.
// Sizes are upper bounds for any choices, since launches have fixed shapes.
struct ExpertRows {
  const std::int32_t* experts = nullptr;  // [choices]
  const float* weights = nullptr;         // [tokens, k]
  std::int64_t weight_stride = 0;         // elements between tokens
  std::int32_t choices = 0;
  std::int32_t k = 0;
  std::int32_t expert_count = 0;
  std::int32_t block_rows = kSmallBlock;
  std::int32_t blocks = 0;

  // Written by sort_choices(), in device memory.
  std::int32_t* live_blocks = nullptr;      // how many are in use, which come first
  std::int32_t* expert_of_block = nullptr;  // [blocks], −1: unused
  std::int32_t* rows_of_block = nullptr;    // [blocks] the live rows, which come first
  std::int32_t* row_of_choice = nullptr;    // [choices], −1: no such expert
  std::int32_t* choice_of_row = nullptr;    // [blocks · block_rows], valid for live rows

  // For grouped GEMMs, in place of blocks: rows without padding, [choices] of them, and the row
  // tiles of the experts. Null: blocks.
  std::int32_t tile_rows = 0;
  WgmmaRowTile* row_tiles = nullptr;       // [most_row_tiles()]
  std::int32_t* row_tile_count = nullptr;  // out
  std::int32_t* live_rows = nullptr;       // out
};

// Upper bound of Σ ⌈n_e / block_rows⌉, for n_e choices of expert e.
BL_HD constexpr std::int64_t most_blocks(std::int64_t choices, std::int64_t experts,
                                         std::int64_t block_rows) {
  const std::int64_t used = choices < experts ? choices : experts;
  return (choices + (block_rows - 1) * used) / block_rows;
}

#if defined(__CUDACC__)

// Whether a choice names an expert of the layer.
__device__ __forceinline__ bool exists(const ExpertRows& rows, int expert) {
  return static_cast<unsigned>(expert) < static_cast<unsigned>(rows.expert_count);
}

// Returns the row of a choice; −1: it has none.
__device__ __forceinline__ int row_of_choice(const ExpertRows& rows, int choice) {
  return rows.row_of_choice[choice];
}

#endif

}  // namespace bl::cuda
