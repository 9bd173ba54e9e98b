#pragma once
// Asynchronous copies from global to shared memory that every thread issues for itself and waits
// for in groups (PTX ISA, cp.async; compute capability 8.0 and later).

#include <cstdint>

#include "backend/cuda/device/shared_address.cuh"

namespace bl::cuda {

// Copies kBytes (4, 8 or 16) bytes, or writes as many zeros where `present` is false.
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
// Copies 16 bytes, or writes zeros, with an L2 cache policy (cache_policy.cuh).
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

// Closes a group: the copies that this thread has issued since the last call.
__device__ __forceinline__ void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kPending of this thread's newest groups are still in flight.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Copies of 16 or 8 bytes with an L2 cache policy (cache_policy.cuh), issued only where `wanted`.
// The instruction is predicated, because a branch around it costs three more instructions.
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
// Waits until at most `pending` groups are in flight, for a count known at run time only: 1 to 5,
// or 7 for anything else.
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
