#pragma once
// Bulk copies (TMA) from global to shared memory (PTX ISA, cp.async.bulk; compute capability 9.0
// and later), and the mbarriers that these and cp.async complete on (8.0 and later).

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/shared_address.cuh"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// Makes the initial state of barriers visible to the copy engine (TMA), where there is one.
__device__ __forceinline__ void barrier_init_fence() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// Returns whether the phase of this parity is complete, without waiting.
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

__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, std::uint32_t phase) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
#else
  // Waiting warps must leave the others the issue slots.
  constexpr unsigned kNanoseconds = 32;
  while (!barrier_test(barrier, phase)) __nanosleep(kNanoseconds);
#endif
}

// Arrives at the barrier when the copy_small() calls that this thread has made so far are complete.
// The arrival must be included in the count given to barrier_init() (`noinc`).
__device__ __forceinline__ void barrier_arrive_behind_copies(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// Copies 16 bytes with cp.async; both addresses are multiples of 16. One such copy a lane is
// cheaper than a bulk copy, which a single lane has to issue.
__device__ __forceinline__ void copy_small(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}
// copy_small() with an L2 cache policy (cache_policy.cuh) on 9.0 and later. Not on 8.x, because
// there ptxas 13.0 makes operands of such copies that the card refuses (tools/check_machine_code).
__device__ __forceinline__ void copy_small(void* to, const void* from, std::uint64_t policy) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
      "l"(from), "l"(policy)
      : "memory");
#else
  copy_small(to, from);
#endif
}

// What a bulk copy does, by the whole warp with cp.async: `to`, `from` and `bytes` are the same for
// all lanes, and multiples of 16. The caller's next barrier_arrive_behind_copies() covers the
// copies.
__device__ __forceinline__ void copy_by_warp(void* to, const std::byte* from, int bytes,
                                             std::uint64_t policy) {
  constexpr int kRound = 32 * 16;
  const int lane_at = static_cast<int>(threadIdx.x) % 32 * 16;
  std::byte* lane_to = static_cast<std::byte*>(to) + lane_at;
  from += lane_at;
#pragma unroll 4
  for (int left = bytes - lane_at; left > 0; left -= kRound, lane_to += kRound, from += kRound) {
    copy_small(lane_to, from, policy);
  }
}

#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Arrives at the barrier and adds `bytes` to the bytes that its current phase waits for.
__device__ __forceinline__ void barrier_expect(std::uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

// Copies `bytes` and completes them on `barrier`. Addresses and size are multiples of 16.
__device__ __forceinline__ void bulk_copy(void* to, const void* from, int bytes,
                                          std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// bulk_copy() with an L2 cache policy (cache_policy.cuh).
__device__ __forceinline__ void bulk_copy(void* to, const void* from, int bytes,
                                          std::uint64_t* barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Prefetches `bytes` into L2. Address and size are multiples of 16.
__device__ __forceinline__ void prefetch_l2(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Copies a box of a two-dimensional tensor (tensor_map.h), whose first element is element `column`
// of row `row`, and completes it on `barrier`.
__device__ __forceinline__ void tensor_copy(void* to, const CUtensorMap* map, int column, int row,
                                            std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}

// Makes ordinary stores to shared memory visible to the copy engine and to wgmma (the async proxy).
__device__ __forceinline__ void async_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

}  // namespace bl::cuda
