#pragma once
// Activations as products on packed codes want them (code_product.cuh): what the kernels that make
// them share.

#include <cuda_fp16.h>

#include "backend/cuda/code_product.cuh"

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

  // Slot 32 · unit + lane is `value`, divided already. All lanes of the warp take part.
  __device__ __forceinline__ void store_unit(int unit, float value, int lane) const {
    const __half half = __float2half_rn(lane < 16 ? value : value * 0.0625f);
    reinterpret_cast<__half*>(fragments)[unit * unit_stride * kUnitSlots + fragment_place(lane)] =
        half;
  }
  // The same in bricks of 8 tokens × 8 slots, as warpgroups want them: `fragments` is of the
  // token's slot 0, the stride a multiple of 8. Returns the value as it is read.
  __device__ __forceinline__ float store_bricks(int unit, float value, int lane) const {
    const __half half = __float2half_rn(lane < 16 ? value : value * 0.0625f);
    reinterpret_cast<__half*>(
        fragments)[(unit * (kUnitSlots / 8) + lane / 8) * unit_stride * 8 + lane % 8] = half;
    return __half2float(half) * (lane < 16 ? 1.0f : 16.0f);
  }
};

}  // namespace bl::cuda
