#pragma once
// CTAs of a cluster, which reach each other's shared memory (PTX ISA, barrier.cluster, mapa;
// compute capability 9.0 and later).

#include <cuda.h>

#include <cstdint>

#include "backend/cuda/device/shared_address.cuh"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// All threads of the cluster meet between one of these and the third. What they wrote before is
// only seen by others behind the first, which costs a fence of the whole card.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place in the shared memory of CTA `rank` of the cluster.
__device__ __forceinline__ std::uint32_t of_cta(std::uint32_t address, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// At CTA `rank`'s barrier.
__device__ __forceinline__ void barrier_arrive_at(std::uint64_t* barrier, int rank) {
  asm volatile(
      "mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(of_cta(shared_address(barrier), rank))
      : "memory");
}

// A box of a tensor of two dimensions, from element `column` of row `row` on, to the same place of
// all CTAs whose bits are set, each of which is told at its barrier.
__device__ __forceinline__ void tensor_copy_to_all(void* to, const CUtensorMap* map, int2 from,
                                                   std::uint64_t* barrier, std::uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(from.x), "r"(from.y), "h"(ctas)
      : "memory");
}

#endif

}  // namespace bl::cuda
