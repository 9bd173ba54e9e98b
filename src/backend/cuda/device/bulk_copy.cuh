#pragma once
// Bulk copies from global to shared memory and the barriers they complete on (PTX ISA,
// cp.async.bulk and mbarrier; compute capability 9 and later).

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/shared_address.cuh"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// Makes barriers' initial state visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives, and says how many bytes will come.
__device__ __forceinline__ void barrier_expect(std::uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, std::uint32_t phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}

// Whether the phase is over.
__device__ __forceinline__ bool barrier_test(std::uint64_t* barrier, std::uint32_t phase) {
  std::uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(phase)
      : "memory");
  return done != 0;
}

// Arrives once what this thread has asked for by copy_small() is there; it must be counted among
// the barrier's arrivals.
__device__ __forceinline__ void barrier_arrive_behind_copies(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// 16 bytes at multiples of 16: a lane each is cheaper than a bulk copy that only one lane can
// issue.
__device__ __forceinline__ void copy_small(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}
// The same with a policy (cache_policy.cuh).
__device__ __forceinline__ void copy_small(void* to, const void* from, std::uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
      "l"(from), "l"(policy)
      : "memory");
}

// Addresses and bytes are multiples of 16.
__device__ __forceinline__ void bulk_copy(void* to, const void* from, int bytes,
                                          std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// The same with a policy (cache_policy.cuh).
__device__ __forceinline__ void bulk_copy(void* to, const void* from, int bytes,
                                          std::uint64_t* barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// To the second level of the cache; address and bytes are multiples of 16.
__device__ __forceinline__ void prefetch_l2(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// A box of a tensor of two dimensions, from element `column` of row `row` on.
__device__ __forceinline__ void tensor_copy(void* to, const CUtensorMap* map, int column, int row,
                                            std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}

// What ordinary stores left in shared memory becomes visible to the copy engine and to wgmma.
__device__ __forceinline__ void async_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

}  // namespace bl::cuda
