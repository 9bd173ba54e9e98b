#pragma once
#include <cuda_fp16.h>

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

// What products of a token's halves are multiplied with.
__device__ __forceinline__ float scale_of_note(float note) {
  if (is_scale(note)) return -note;
  return left_serves(note) ? kLeftScale : power_of_two_for(note, kInputExponent);
}

// Tokens of one launch of the product: the first, and how many.
struct LeftTile {
  int first;
  int tokens;
  __device__ __forceinline__ LeftTile(int first_token, int count)
      : first(first_token), tokens(count) {}
  // The one that `token` of the step is in.
  __device__ __forceinline__ LeftTile(const LeftInput& left, int token)
      : first(token / kLeftTile * kLeftTile), tokens(min(left.tokens - first, kLeftTile)) {}
};

// `token`: of the step; `place`: of place_of_channel; `value`: divided by the scale.
__device__ __forceinline__ void leave(const LeftInput& left, const LeftTile& tile, int token,
                                      std::uint32_t place, float value) {
  // Slots whose codes come out 16 times too large (code_matrix.h).
  const bool upper = (fragment_place(16) & place) != 0;
  const std::uint32_t unit = place / kUnitSlots;
  const std::uint32_t row = static_cast<std::uint32_t>(tile.first) * left.units +
                            unit * static_cast<std::uint32_t>(tile.tokens) + (token - tile.first);
  left.fragments[row * std::uint32_t{kUnitSlots} + place % kUnitSlots] =
      __half_as_ushort(__float2half_rn(upper ? value * (1.0f / 16.0f) : value));
}

}  // namespace bl::cuda
