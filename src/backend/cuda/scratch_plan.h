#pragma once
// What the ops take of the arena of a step: pure arithmetic, so that a plan needs no card.

#include <cstddef>
#include <cstdint>

#include "ops/backend.h"

namespace bl::cuda {

// Above, products are always those of many rows, for which codes may be expanded in memory; below
// kFewestLargeTokens never (LaunchPlan says from where on).
inline constexpr std::int64_t kMaxPackedTokens = 64;
inline constexpr std::int64_t kFewestLargeTokens = 17;
// Rows that prepared activations of a few tokens have room for.
constexpr std::int64_t packed_act_rows(std::int64_t tokens) { return (tokens + 31) / 32 * 32; }
// Strips times parts, where a product has results of parts of the slots (gemm_skinny_regs.h).
inline constexpr std::int64_t kMaxSplitKNTiles = 4096;
// Of gemm_wgmma_dequant(): parts of the slots at most, and floats that their results take at most.
inline constexpr std::int64_t kMaxWgmmaKSplits = 8;
inline constexpr std::int64_t kPartialFloats = kMaxSplitKNTiles * 16 * kMaxPackedTokens;
// Expanded weights held at a time.
inline constexpr std::int64_t kExpandedBytes = 128 << 20;
// Matrices of one launch of products: q, k, v and a gate.
inline constexpr int kMaxMatrices = 4;
// Parts of a row whose largest values `argmax` compares: a lane each at the end.
inline constexpr int kArgmaxParts = 32;
// Calls of `experts` with many tokens are cut into slices that take no more than this, if one token
// does.
inline constexpr std::size_t kExpertSliceBytes = std::size_t{256} << 20;
// Page tables of one step.
inline constexpr std::int64_t kTableInts = 1 << 20;

// What a call of `experts` takes, by what its matrices are.
struct ExpertScratch {
  std::int64_t experts = 0;
  std::int64_t k = 0;
  std::int64_t input_k_steps = 0;  // of a prepared row of x, for each gather
  std::int64_t input_layouts = 0;
  std::int64_t first_width = 0;   // gate and up
  std::int64_t hidden_k_steps = 0;  // of a prepared hidden row
  std::int64_t hidden_width = 0;  // of a plain one
  std::int64_t out = 0;

  // Widths of rows are rounded up to this.
  static std::int64_t rounded(std::int64_t width) { return (width + 3) / 4 * 4; }
  std::size_t bytes(std::int64_t tokens) const;
};

// Upper bound of what any op takes by itself, and of what plan_attention holds for the whole step.
std::size_t op_scratch_bytes(const Backend::ScratchShape& shape, int multiprocessors);

}  // namespace bl::cuda
