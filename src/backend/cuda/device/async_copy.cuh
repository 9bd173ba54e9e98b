#pragma once
// Copies from global to shared memory that every thread asks for by itself, and waits for by groups
// (PTX ISA, cp.async).

#include <cstdint>

#include "backend/cuda/device/shared_address.cuh"

namespace bl::cuda {

// kBytes (4, 8 or 16) bytes, or zeros.
template <int kBytes>
__device__ __forceinline__ void copy_or_clear(std::uint32_t to, const void* from, bool present) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(present ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(present ? kBytes : 0)
                 : "memory");
  }
#endif
}
// The same of 16 bytes with a policy (cache_policy.cuh).
__device__ __forceinline__ void copy_or_clear(std::uint32_t to, const void* from, bool present,
                                              std::uint64_t policy) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(present ? 16 : 0), "l"(policy)
               : "memory");
#endif
}
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool present) {
  copy_or_clear<16>(shared_address(shared), global, present);
}

// What this thread has asked for since the last time is a group.
__device__ __forceinline__ void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Copies of 16 or 8 bytes with a policy (cache_policy.cuh), where `wanted`: predicates, since every
// branch to such a copy costs three instructions more.
__device__ __forceinline__ void copy_small_if(bool wanted, std::uint32_t to, const void* from,
                                              std::uint64_t policy) {
  asm volatile(
      "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %2, 0;\n"
      "@wanted cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %3;\n}\n" ::"r"(to),
      "l"(from), "r"(static_cast<int>(wanted)), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void copy_eight_if(bool wanted, std::uint32_t to, const void* from,
                                              std::uint64_t policy) {
  asm volatile(
      "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %2, 0;\n"
      "@wanted cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 8, %3;\n}\n" ::"r"(to),
      "l"(from), "r"(static_cast<int>(wanted)), "l"(policy)
      : "memory");
}
// All but the last `pending` groups of this thread's copies have come.
__device__ __forceinline__ void wait_copies(int pending) {
  if (pending == 3) {
    wait_copies<3>();
  } else if (pending == 2) {
    wait_copies<2>();
  } else if (pending == 1) {
    wait_copies<1>();
  } else if (pending == 4) {
    wait_copies<4>();
  } else if (pending == 5) {
    wait_copies<5>();
  } else {
    wait_copies<7>();
  }
}

#endif

}  // namespace bl::cuda
