#pragma once
#include <cstdint>

namespace bl::cuda {

// Converts a generic pointer to the 32-bit shared memory address that PTX instructions take.
__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// Returns the same pointer, but hides from the compiler how it was computed. Otherwise the compiler
// repeats that arithmetic for every access instead of adding an offset to one base register.
__device__ __forceinline__ const std::byte* opaque_smem_ptr(const std::byte* shared) {
  std::uint32_t at = shared_address(shared);
  asm volatile("" : "+r"(at));
  return static_cast<const std::byte*>(__cvta_shared_to_generic(at));
}

__device__ __forceinline__ std::byte* opaque_smem_ptr(std::byte* shared) {
  return const_cast<std::byte*>(opaque_smem_ptr(static_cast<const std::byte*>(shared)));
}

}  // namespace bl::cuda
