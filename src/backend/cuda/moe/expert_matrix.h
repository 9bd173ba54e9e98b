#pragma once
// The experts of one layer as kernels see them: for host and device.

#include <cstdint>

#include "backend/cuda/layout/code_matrix.h"
#include "tensor/dtype.h"

namespace bl::cuda {

// One matrix of one expert; tables of them lie in device memory.
struct ExpertMatrix {
  CodeMatrixView view;                         // without codes: a plain matrix
  const std::int32_t* feature_of_k = nullptr;  // of codes
  const void* rows = nullptr;                  // plain: [out, in]
  const float* bias = nullptr;                 // [out] or null
  DType type = DType::kF16;                    // of plain rows
};

// Rows of a block: what a tensor-core product takes at once, or four times that where experts have
// many rows.
inline constexpr std::int32_t kSmallBlock = 8;
inline constexpr std::int32_t kLargeBlock = 32;

// The choices of a call, c = t · k + j for the j-th expert of token t, sorted by expert: each
// expert's choices take rows of their own in blocks of `block_rows`, so that a block has one
// expert. The numbers are bounds that hold whatever was chosen, since launches have fixed shapes.
struct ExpertRows {
  const std::int32_t* experts = nullptr;  // [choices]
  const float* weights = nullptr;         // [tokens, k]
  std::int64_t weight_stride = 0;         // elements between tokens
  std::int32_t choices = 0;
  std::int32_t k = 0;
  std::int32_t expert_count = 0;
  std::int32_t block_rows = kSmallBlock;
  std::int32_t blocks = 0;

  // Made by sort_choices, in device memory.
  std::int32_t* expert_of_block = nullptr;  // [blocks], −1: unused
  std::int32_t* rows_of_block = nullptr;    // [blocks], live ones, which come first
  std::int32_t* row_of_choice = nullptr;    // [choices], −1: there is no such expert
  std::int32_t* choice_of_row = nullptr;    // [blocks · block_rows], of live rows only
};

// Σ ⌈n_e / rows⌉ at most, for n_e choices of expert e.
BL_HD constexpr std::int64_t most_blocks(std::int64_t choices, std::int64_t experts,
                                         std::int64_t block_rows) {
  const std::int64_t used = choices < experts ? choices : experts;
  return (choices + (block_rows - 1) * used) / block_rows;
}

}  // namespace bl::cuda
