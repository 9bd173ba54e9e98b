#pragma once
// What the codes of a group stand for, by format.

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/fitting/group_grids.h"
#include "format/exl2_scale.h"
#include "ops/grid_math.h"

namespace bl::cuda {

// A warp rounds this many columns, each by one lane.
inline constexpr int kGridColumns = 32;

// Code q of a column stands for RN16((q − zero) · scale); scale 0: the column holds nothing but
// zeros.
struct ColumnGrid {
  float scale;
  float zero;
  float last;  // the largest code
  __device__ float clamped(float steps) const {
    return round_even(fminf(fmaxf(steps, -zero), last - zero));
  }
  __device__ float value(float steps) const { return float_of_half(half_of_float(steps * scale)); }
};

struct Exl2Group {
  std::uint8_t* codes;
  const std::uint16_t* maximum;
  int bits;

  __device__ ColumnGrid grid(std::int64_t column) const {
    return {exl2_column_scale(exl2_group_scale(*maximum), codes[column]),
            static_cast<float>(exl2_center(bits)), static_cast<float>((1 << bits) - 1)};
  }
  // Takes another scale where that lowers the loss.
  __device__ void refit(std::int64_t column, const RefitSums& sums) const {
    const float group_scale = exl2_group_scale(*maximum);
    float scales[16];
    for (std::uint32_t code = 0; code < 16; ++code) {
      scales[code] = exl2_column_scale(group_scale, code);
    }
    const int code = refitted_exl2_code(scales, codes[column], sums);
    codes[column] = static_cast<std::uint8_t>(code);
  }
};

struct GptqGroup {
  std::uint8_t* zeros;
  std::uint16_t* scales;
  GptqGridRules rules;

  __device__ ColumnGrid grid(std::int64_t column) const {
    return {float_of_half(scales[column]), static_cast<float>(zeros[column]),
            static_cast<float>((1 << rules.bits) - 1)};
  }
  __device__ void store(std::int64_t column, float scale, float zero) const {
    scales[column] = half_of_float(scale);
    zeros[column] = static_cast<std::uint8_t>(zero);
  }
  __device__ void refit(std::int64_t column, const RefitSums& sums) const {
    if (rules.min_max) return;
    const GptqGrid now{float_of_half(scales[column]), static_cast<float>(zeros[column]), 0.0};
    const GptqGrid best = refitted_gptq_grid(sums, now, rules.least_zero, rules.largest_zero);
    store(column, best.scale, best.zero);
  }
};

// Calls f(Exl2Group) or f(GptqGroup).
template <class F>
void with_group(const GroupGrids& grids, const F& f) {
  if (const auto* rules = std::get_if<GptqGridRules>(&grids.rules)) {
    f(GptqGroup{grids.column_codes, grids.scales, *rules});
  } else {
    f(Exl2Group{grids.column_codes, grids.scales, grids.bits});
  }
}

// The weighted squared error of a column's weights, `stride` apart, on a grid. Values are not
// rounded to binary16 here.
__device__ __forceinline__ float grid_error(const float* weights, std::int64_t stride,
                                            const float* importance, std::int64_t slots,
                                            const ColumnGrid& grid) {
  const float inverse = grid.scale > 0.0f ? 1.0f / grid.scale : 0.0f;
  float sum = 0.0f;
#pragma unroll 4
  for (std::int64_t r = 0; r < slots; ++r) {
    const float weight = weights[r * stride];
    const float error = weight - grid.clamped(weight * inverse) * grid.scale;
    sum += importance[r] * error * error;
  }
  return sum;
}

}  // namespace bl::cuda
