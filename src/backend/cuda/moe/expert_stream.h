#pragma once
// Grouped GEMMs of few rows an expert with packed codes, compute capability 9.0 and later. CTAs are
// persistent: each walks over items (a block of rows × a few n_tiles of its expert), and its
// producer warp streams the codes of the next items and their rows' limbs (expert_limbs.h) through
// the smem pipeline while the consumer warps multiply on int8 tensor cores. A consumer warp has one
// or three n_tiles of an item and every parts-th of its k_blocks; the sums of all parts are added
// in a fixed order. With two matrices an item is the same n_tiles of gate and of up, and the
// epilogue activates.
//
// Bound by reading the chosen experts' weights; bench/ladder/moe_decode.md says what share is
// reached.

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/moe/expert_matrix.h"
#include "backend/cuda/moe/expert_products.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Results go to `to`, [rows, out]. expert_stream_gemm() divides the work.
struct ExpertStreamArgs : ExpertProducts {
  // Columns [first_n_tile · 16, …) of a matrix of each expert.
  struct Matrix {
    const ExpertMatrix* table = nullptr;  // [experts]
    const std::byte* limbs = nullptr;     // from pack_expert_limbs()
    std::int32_t first_n_tile = 0;
    // The most bytes that a copy_block of one n_tile has, in any expert.
    std::int32_t copy_block_bytes = 0;
    std::int32_t copy_block_scale_bytes = 0;
  };
  ExpertRows rows;
  Matrix matrices[2];
};

// Rows of a block: one, two or four token tiles of kLimbRows.
inline constexpr std::int32_t kStreamBlocks[] = {4, 8, 16};

void expert_stream_gemm(ExecContext& ctx, const ExpertStreamArgs& args);

}  // namespace bl::cuda
