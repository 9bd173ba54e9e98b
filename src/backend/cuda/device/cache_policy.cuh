#pragma once
// L2 eviction policies (PTX ISA, createpolicy; compute capability 8.0 and later).

#include <cstdint>

namespace bl::cuda {

// Evict-first, the policy for weights: a step reads each of them once, and reads everything else
// before it needs them again. Because they then displace each other, the small data that every step
// reads stays in L2: tables, activations, keys, code.
__device__ __forceinline__ std::uint64_t evict_first() {
  std::uint64_t policy = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
  return policy;
}

}  // namespace bl::cuda
