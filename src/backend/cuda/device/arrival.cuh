#pragma once
// CTAs that count themselves, so that the last one goes on with what all have left in memory.

#include <cstdint>

namespace bl::cuda {

// By one thread of each of `count` CTAs, behind a barrier of its CTA: whether it is the last to
// come. Releases what the barrier made this thread's, and acquires the others'. The counter is zero
// before the first and behind the last. Compute capability 7.0 and later.
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
