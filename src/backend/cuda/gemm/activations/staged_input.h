#pragma once
// StagedInput of a few tokens: what gemm_skinny_regs() reads as the launch before left it, without
// one in between that makes activations ready. Rows are fragments as prepare() makes them. A
// token's note says what they are divided by, or how large the row is: then they are divided by
// kStagedScale, if that serves, and otherwise the reader makes them ready from the same row in F32.

#include <cstdint>

#include "base/host_device.h"
#include "ops/exec_context.h"
#include "ops/half_input.h"

namespace bl::cuda {

// Rows of zeros, and those whose largest value is within these bounds: binary16 holds them, a slot
// stored divided by 16 too, and its smallest step is 2^-13 of the largest value at most.
inline constexpr float kStagedScale = 0.25f;
inline constexpr float kSmallestStaged = 0x1p-9f;
inline constexpr float kLargestStaged = 0x1p13f;

// Notes are the largest |x| of a row, or a scale with a minus before it.
BL_HD constexpr float encoded_row_scale(float scale) { return -scale; }
BL_HD constexpr bool is_scale(float row_scale) { return row_scale < 0.0f; }
BL_HD constexpr bool staged_row_serves(float row_scale) {
  return is_scale(row_scale) || row_scale == 0.0f ||
         (row_scale >= kSmallestStaged && row_scale < kLargestStaged);
}

inline constexpr int kStagedTileTokens = 16;  // tokens of one launch of the product

// What a kernel needs to leave it.
struct StagedFragments {
  std::uint16_t* fragments = nullptr;  // binary16; null: nothing is left
  float* row_scales = nullptr;         // [tokens]
  const std::uint16_t* fragment_offset_of_feature = nullptr;
  std::int32_t k_steps = 0;
  std::int32_t tokens = 0;
};

StagedFragments staged_fragments_of(const StagedInput& half);

// Whether a StagedInput of a step is of this kind, and not of gemm_large().
bool is_staged_fragments(const ExecContext& ctx, const StagedInput& half);

// Width of the StagedInput of `reader`; 0 where gemm_skinny_regs() does not multiply it.
std::int64_t staged_fragments_width(const ExecContext& ctx, const PackedMatrix& reader,
                                    std::int64_t tokens);

// Leaves rows of x, F32 [tokens, in].
void pack_staged(ExecContext& ctx, const TensorView& x, const StagedInput& half);

}  // namespace bl::cuda
