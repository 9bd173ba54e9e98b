#pragma once
#include "backend/cuda/gemm/partition/partition_cache.h"

namespace bl::cuda {

// The first strip of a share; of the one behind the last: the count of all.
__device__ __forceinline__ int share_begin(const ShareBegins& begins, unsigned share) {
  return begins.far != nullptr ? __ldg(begins.far + share) : begins.near[share];
}

}  // namespace bl::cuda
