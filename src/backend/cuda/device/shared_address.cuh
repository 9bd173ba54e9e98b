#pragma once
#include <cstdint>

namespace bl::cuda {

// An address as instructions on shared memory take it.
__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// The same place, as one number that addresses are counted from; else the compiler adds up the
// parts that it knows of it for every access.
__device__ __forceinline__ const std::byte* opaque_smem_ptr(const std::byte* shared) {
  std::uint32_t at = shared_address(shared);
  asm volatile("" : "+r"(at));
  return static_cast<const std::byte*>(__cvta_shared_to_generic(at));
}

__device__ __forceinline__ std::byte* opaque_smem_ptr(std::byte* shared) {
  return const_cast<std::byte*>(opaque_smem_ptr(static_cast<const std::byte*>(shared)));
}

}  // namespace bl::cuda
