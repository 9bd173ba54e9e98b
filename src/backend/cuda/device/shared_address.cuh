#pragma once
#include <cstdint>

namespace bl::cuda {

// An address as instructions on shared memory take it.
__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

}  // namespace bl::cuda
