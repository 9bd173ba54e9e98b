#pragma once
// Activations as products on packed codes want them (code_product.cuh): what the kernels that make
// them share.

#include <cuda_fp16.h>

#include "backend/cuda/code_product.cuh"

namespace bl::cuda {

inline constexpr int kPrepareThreads = 256;
inline constexpr int kUnitsPerWarp = 4;
inline constexpr int kUnitsPerCta = kPrepareThreads / 32 * kUnitsPerWarp;

// The power of two that brings `largest` to [2^9, 2^10): far from overflow of binary16 in sums of
// products with codes, far from its subnormals for whatever matters beside the largest.
__device__ __forceinline__ float power_for(float largest) {
  if (!(largest > 0.0f) || isinf(largest)) return 1.0f;
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  return exp2f(static_cast<float>(max(min(exponent - 9, 100), -100)));
}

// The largest value of a CTA of kPrepareThreads. `parts`: shared, one a warp.
__device__ __forceinline__ float cta_largest(float value, float* parts) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kPrepareThreads / 32; ++w) value = fmaxf(value, parts[w]);
  return value;
}

// One row of prepared activations.
struct PreparedRow {
  std::uint32_t* fragments = nullptr;  // of all rows
  std::int32_t units = 0;              // of a row
  std::int64_t row = 0;

  // Slot 32 · unit + lane is `value`, divided already. All lanes of the warp take part.
  __device__ __forceinline__ void store_unit(int unit, float value, int lane) const {
    const int s = lane / 16;
    const __half half = __float2half_rn(s == 0 ? value : value * 0.0625f);
    // Slot 16s + 8r + 2t + e is half e of register 2s + r of lane t.
    const int r = lane / 8 % 2;
    const int place = (lane % 8 / 2) * 8 + (2 * s + r) * 2 + lane % 2;
    reinterpret_cast<__half*>(fragments)[(row * units + unit) * 32 + place] = half;
  }
};

}  // namespace bl::cuda
