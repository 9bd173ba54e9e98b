#pragma once
#include <cuda_fp16.h>

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

// Returns what the sums of a staged row have to be multiplied by.
__device__ __forceinline__ float decoded_row_scale(float row_scale) {
  if (is_scale(row_scale)) return -row_scale;
  return staged_row_serves(row_scale) ? kStagedScale : power_of_two_for(row_scale, kInputExponent);
}

// Tokens of one launch of the GEMM that reads the row: the first, and how many.
struct StagedTile {
  int first;
  int tokens;
  __device__ __forceinline__ StagedTile(int first_token, int count)
      : first(first_token), tokens(count) {}
  // The tile of `token` of the step.
  __device__ __forceinline__ StagedTile(const StagedFragments& staged, int token)
      : first(token / kStagedTileTokens * kStagedTileTokens),
        tokens(min(staged.tokens - first, kStagedTileTokens)) {}
};

// `token`: in the step; `place`: from fragment_offset_of_feature; `value`: already divided by the
// scale.
__device__ __forceinline__ void stage_value(const StagedFragments& staged, const StagedTile& tile,
                                            int token, std::uint32_t place, float value) {
  // Codes of these k arrive multiplied by 16 (code_matrix.h), so activations are divided by 16.
  const bool upper = (fragment_offset(16) & place) != 0;
  const std::uint32_t k_step = place / kKStepSize;
  const std::uint32_t row = static_cast<std::uint32_t>(tile.first) * staged.k_steps +
                            k_step * static_cast<std::uint32_t>(tile.tokens) + (token - tile.first);
  staged.fragments[row * std::uint32_t{kKStepSize} + place % kKStepSize] =
      __half_as_ushort(__float2half_rn(upper ? value * (1.0f / 16.0f) : value));
}

}  // namespace bl::cuda
