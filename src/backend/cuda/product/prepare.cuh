#pragma once
// Activations as products on packed codes want them (code_product.cuh): what the kernels that make
// them share.

#include <cuda_fp16.h>

#include "backend/cuda/product/code_product.cuh"

namespace bl::cuda {

// The largest activation of a row comes to [2^9, 2^10): far from overflow of binary16 in sums of
// products with codes, far from its subnormals for whatever matters beside the largest.
inline constexpr int kInputExponent = 9;

inline constexpr int kPrepareThreads = 256;
inline constexpr int kUnitsPerWarp = 4;
inline constexpr int kUnitsPerCta = kPrepareThreads / 32 * kUnitsPerWarp;

// One row of prepared activations.
struct PreparedRow {
  std::uint32_t* fragments = nullptr;  // of unit 0
  std::int64_t unit_stride = 0;        // to the next unit's, in units

  // Slot 32 · unit + lane is `value`, divided already; returns it as it is read. All lanes of the
  // warp take part.
  __device__ __forceinline__ float store_unit(int unit, float value, int lane) const {
    return store(unit * unit_stride * kUnitSlots + fragment_place(lane), value, lane);
  }
  // The same in bricks of 8 tokens × 8 slots, as warpgroups want them: `fragments` is of the
  // token's slot 0, the stride a multiple of 8.
  __device__ __forceinline__ float store_bricks(int unit, float value, int lane) const {
    return store((unit * (kUnitSlots / 8) + lane / 8) * unit_stride * 8 + lane % 8, value, lane);
  }

  __device__ __forceinline__ float store(std::int64_t at, float value, int lane) const {
    const float times = lane < 16 ? 1.0f : 16.0f;
    const __half half = __float2half_rn(value / times);
    reinterpret_cast<__half*>(fragments)[at] = half;
    return __half2float(half) * times;
  }
};

}  // namespace bl::cuda
