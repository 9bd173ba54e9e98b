#pragma once
// Sums and maxima over the lanes of a warp, and over all threads of a CTA. All threads call and all
// get the result. The order of a sum depends on the number of threads alone.

#include <cuda_runtime.h>

#include <cstdint>

namespace bl::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) & 31; }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / 32; }

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

__device__ __forceinline__ unsigned long long warp_max(unsigned long long value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const unsigned long long other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

__device__ __forceinline__ int warp_sum(int value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(kAllLanes, value);
#else
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
#endif
}

__device__ __forceinline__ std::uint32_t warp_max(std::uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAllLanes, value);
#else
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = max(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
#endif
}

// Returns to each lane the sum of `value` over this lane and all lower ones.
__device__ __forceinline__ int warp_prefix_sum(int value) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int lower = __shfl_up_sync(kAllLanes, value, distance);
    if (lane_index() >= distance) value += lower;
  }
  return value;
}

// Reductions over a CTA of whole warps. `parts` is shared memory, one float a warp, that nothing
// else uses between the barrier before the call and the next one after it.
__device__ __forceinline__ float cta_sum(float value, float* parts) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  value = warp_sum(value);
  if (lane_index() == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(lane_index() < warps ? parts[lane_index()] : 0.0f);
}

__device__ __forceinline__ float cta_max(float value, float* parts) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  value = warp_max(value);
  if (lane_index() == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  // Lanes beyond the number of warps contribute their own warp's maximum, which changes nothing.
  return warp_max(lane_index() < warps ? parts[lane_index()] : value);
}

}  // namespace bl::cuda
