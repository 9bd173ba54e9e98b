#pragma once
#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/prefetch/weight_prefetch.h"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Called by one warp of each CTA: n_tiles alternate over the CTAs, one a lane.
__device__ __forceinline__ void issue_weight_prefetch(const WeightPrefetch& prefetch) {
#pragma unroll 1
  for (int m = 0; m < prefetch.count; ++m) {
    const WeightPrefetch::Source& of = prefetch.sources[m];
#pragma unroll 1
    for (auto i = static_cast<int>(blockIdx.x + gridDim.x * lane_index()); i < of.n_tiles;
         i += static_cast<int>(gridDim.x) * 32) {
      const auto n_tile = static_cast<std::uint64_t>(i);
      prefetch_l2(of.codes + n_tile * of.n_tile_bytes, of.code_bytes);
      prefetch_l2(of.scales + n_tile * of.scale_bytes, of.scale_bytes);
    }
  }
}

#endif

}  // namespace bl::cuda
