#pragma once
// The staged input of gemm_skinny_regs(): the launch in front writes its result in fragment order,
// so that no launch packs activations in between. Row scales are stored beside it, encoded. A
// negative value is minus the scale that the row was divided by. Otherwise the value is the row's
// largest |x| (row_absmax), and the row was divided by kStagedScale; if that is not precise enough,
// the reader packs the row again from F32.

#include <cstdint>

#include "base/host_device.h"

namespace bl::cuda {

// kStagedScale serves rows of zeros, and rows whose largest value is within these bounds: binary16
// holds them, also where an element is stored divided by 16, and its smallest step is at most 2^-13
// of the largest value.
inline constexpr float kStagedScale = 0.25f;
inline constexpr float kSmallestStaged = 0x1p-9f;
inline constexpr float kLargestStaged = 0x1p13f;

BL_HD constexpr float encoded_row_scale(float scale) { return -scale; }
BL_HD constexpr bool is_scale(float row_scale) { return row_scale < 0.0f; }
BL_HD constexpr bool staged_row_serves(float row_scale) {
  return is_scale(row_scale) || row_scale == 0.0f ||
         (row_scale >= kSmallestStaged && row_scale < kLargestStaged);
}

inline constexpr int kStagedTileTokens = 16;  // tokens of one launch of the GEMM

// What a kernel needs to stage its result.
struct StagedFragments {
  std::uint16_t* fragments = nullptr;  // binary16; null: nothing is staged
  float* row_scales = nullptr;         // [tokens], encoded
  const std::uint16_t* fragment_offset_of_feature = nullptr;
  std::int32_t k_steps = 0;
  std::int32_t tokens = 0;
};

}  // namespace bl::cuda
