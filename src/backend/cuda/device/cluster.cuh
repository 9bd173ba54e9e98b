#pragma once
// Thread block clusters: their barrier and distributed shared memory (PTX ISA, barrier.cluster and
// mapa; compute capability 9.0 and later).

#include <cuda.h>

#include <cstdint>

#include "backend/cuda/device/shared_address.cuh"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The cluster barrier: all threads of the cluster arrive with one of the first two functions, then
// wait with cluster_wait(). Only cluster_arrive() makes earlier writes visible to the other
// threads; its release costs a fence of device scope.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Maps a shared memory address of this CTA to the same address in CTA `rank` of the cluster.
__device__ __forceinline__ std::uint32_t cluster_address(std::uint32_t address, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Arrives at the copy of `barrier` in CTA `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive_at(std::uint64_t* barrier, int rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                   cluster_address(shared_address(barrier), rank))
               : "memory");
}

// Multicast: copies the box of a two-dimensional tensor that begins at element `from.x` of row
// `from.y` to the same address in every CTA whose bit is set in `ctas`, and completes it on each
// CTA's own copy of `barrier`.
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
