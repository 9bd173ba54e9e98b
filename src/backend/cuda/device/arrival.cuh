#pragma once
// A counter in global memory by which the CTAs of a grid find out which of them finishes last. That
// CTA goes on with what all of them have written, for instance to combine partial results.

#include <cstdint>

namespace bl::cuda {

// Returns whether this CTA is the last of `count` to arrive. One thread of each CTA calls, after a
// __syncthreads(): the atomic releases the CTA's writes and acquires those of the CTAs before it.
// The counter must be zero before the first arrival, and is zero again after the last one, since
// `inc` wraps. Compute capability 7.0 and later.
__device__ __forceinline__ bool arrives_last_of(int count, void* counter) {
  const auto turn = static_cast<std::uint32_t>(count - 1);
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(turn)
               : "memory");
  return before == turn;
}

}  // namespace bl::cuda
