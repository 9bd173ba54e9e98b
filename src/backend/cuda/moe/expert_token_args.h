#pragma once
// GEMVs of one token's experts with packed codes: what a launch is given, and how it is divided
// (expert_token.h).

#include "backend/cuda/moe/expert_matrix.h"
#include "backend/cuda/moe/expert_products.h"

namespace bl::cuda {

inline constexpr int kMostTokenExperts = 32;  // that a token chooses: the producer warp's lanes

// plan_expert_token() divides the work.
struct ExpertTokenArgs : ExpertProducts {
  // Columns [first_n_tile · 16, …) of a matrix of each expert.
  struct Matrix {
    const ExpertMatrix* table = nullptr;  // [experts]
    std::int32_t first_n_tile = 0;
    // The most bytes that a copy_block of one n_tile has, in any expert.
    std::int32_t copy_block_bytes = 0;
    std::int32_t copy_block_scale_bytes = 0;
  };
  const std::int32_t* experts = nullptr;  // [k]; those that do not exist count with weight 0
  const float* weights = nullptr;         // [k]
  std::int32_t k = 0;
  std::int32_t expert_count = 0;
  Matrix matrices[2];
  const float* x = nullptr;  // gate and up: the token's row
  // Down, and gate and up with own_codes: [k] packed rows.
  const std::byte* limbs = nullptr;
  bool weigh = false;  // rows, and biases of down, are multiplied by their weights
  // Down: the choices' results are added up to what is at `to`. Else the result of choice j goes to
  // `to` + j · to_stride.
  bool sums = false;
  std::int32_t ctas = 0;  // of the launch
  // Whether each warp copies the codes of its own k_blocks (expert_token_warps.cu). All launches
  // then read packed rows.
  bool own_codes = false;
  // The launch behind this one that sums, whose first codes a warp of each CTA that multiplies
  // nothing prefetches to L2; without a table: none.
  struct Next {
    const ExpertMatrix* table = nullptr;
    std::int32_t item_n_tiles = 0;
    std::int32_t n_tiles = 0;
    std::int32_t ctas = 0;
  } next;
};

}  // namespace bl::cuda
