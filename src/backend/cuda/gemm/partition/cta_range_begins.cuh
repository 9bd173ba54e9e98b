#pragma once
#include "backend/cuda/gemm/partition/partition_cache.h"

namespace bl::cuda {

// The first strip of a share; of the one behind the last: the count of all.
__device__ __forceinline__ int cta_range_begin(const CtaRangeBegins& begins, unsigned cta_range) {
  return begins.far != nullptr ? __ldg(begins.far + cta_range) : begins.near[cta_range];
}

}  // namespace bl::cuda
