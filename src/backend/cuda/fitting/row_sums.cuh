#pragma once
// Sums of a row in double, whose order depends on the number of threads alone.

#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {

inline constexpr int kRowThreads = 256;

// The sum over all kRowThreads threads of a CTA, in every thread. `parts` is shared memory, one
// double a warp. The CTA must meet at a barrier before it calls this again.
__device__ __forceinline__ double cta_sum(double value, double* parts) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  if (lane_index() == 0) parts[warp_index()] = value;
  __syncthreads();
  double sum = 0.0;
#pragma unroll
  for (int warp = 0; warp < kRowThreads / 32; ++warp) sum += parts[warp];
  return sum;
}

}  // namespace bl::cuda
