#pragma once
#include <cuda_fp16.h>

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

// What products of a token's halves are multiplied with.
__device__ __forceinline__ float decoded_row_scale(float row_scale) {
  if (is_scale(row_scale)) return -row_scale;
  return staged_row_serves(row_scale) ? kStagedScale : power_of_two_for(row_scale, kInputExponent);
}

// Tokens of one launch of the product: the first, and how many.
struct StagedTile {
  int first;
  int tokens;
  __device__ __forceinline__ StagedTile(int first_token, int count)
      : first(first_token), tokens(count) {}
  // The one that `token` of the step is in.
  __device__ __forceinline__ StagedTile(const StagedFragments& left, int token)
      : first(token / kStagedTileTokens * kStagedTileTokens),
        tokens(min(left.tokens - first, kStagedTileTokens)) {}
};

// `token`: of the step; `place`: of fragment_offset_of_feature; `value`: divided by the scale.
__device__ __forceinline__ void stage_value(const StagedFragments& left, const StagedTile& tile,
                                            int token, std::uint32_t place, float value) {
  // Slots whose codes come out 16 times too large (code_matrix.h).
  const bool upper = (fragment_offset(16) & place) != 0;
  const std::uint32_t k_step = place / kKStepSize;
  const std::uint32_t row = static_cast<std::uint32_t>(tile.first) * left.k_steps +
                            k_step * static_cast<std::uint32_t>(tile.tokens) + (token - tile.first);
  left.fragments[row * std::uint32_t{kKStepSize} + place % kKStepSize] =
      __half_as_ushort(__float2half_rn(upper ? value * (1.0f / 16.0f) : value));
}

}  // namespace bl::cuda
