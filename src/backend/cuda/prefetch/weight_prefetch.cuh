#pragma once
#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/prefetch/weight_prefetch.h"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// By a warp of each CTA of a launch: strips go round the CTAs, a lane each.
__device__ __forceinline__ void ask_for_weights(const WeightsAhead& ahead) {
#pragma unroll 1
  for (int m = 0; m < ahead.count; ++m) {
    const WeightsAhead::Source& of = ahead.sources[m];
#pragma unroll 1
    for (auto i = static_cast<int>(blockIdx.x + gridDim.x * lane_index()); i < of.strips;
         i += static_cast<int>(gridDim.x) * 32) {
      const auto strip = static_cast<std::uint64_t>(i);
      bring_near(of.codes + strip * of.strip_bytes, of.code_bytes);
      bring_near(of.scales + strip * of.scale_bytes, of.scale_bytes);
    }
  }
}

#endif

}  // namespace bl::cuda
