#pragma once
// What leaves the second level of the cache first (PTX ISA, createpolicy; compute capability 8 and
// later).

#include <cstdint>

namespace bl::cuda {

// The policy of weights: a step reads them once and all else before it reads them again. As long as
// they make room for themselves, what is small and read in every step stays: tables, rows, keys,
// code.
__device__ __forceinline__ std::uint64_t evict_first() {
  std::uint64_t policy = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
  return policy;
}

}  // namespace bl::cuda
