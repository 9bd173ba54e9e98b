#pragma once
#include "backend/cuda/gemm/partition/partition_cache.h"

namespace bl::cuda {

// Returns the first n_tile of a CTA's range; for the index behind the last, the count of all
// n_tiles.
__device__ __forceinline__ int cta_range_begin(const CtaRangeBegins& begins, unsigned cta_range) {
  return begins.far != nullptr ? __ldg(begins.far + cta_range) : begins.near[cta_range];
}

}  // namespace bl::cuda
