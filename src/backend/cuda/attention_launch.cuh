#pragma once
#include <cstddef>

#include "backend/cuda/launch.cuh"

namespace bl::cuda {

// Lets a kernel take so much dynamic shared memory; a launch within 48 KiB needs no leave.
template <class... Parameters>
void allow_shared_bytes(void (*kernel)(Parameters...), std::size_t bytes) {
  constexpr std::size_t kWithoutLeave = 48 << 10;
  if (bytes <= kWithoutLeave) return;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
}

}  // namespace bl::cuda
