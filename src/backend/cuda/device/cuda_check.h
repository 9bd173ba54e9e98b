#pragma once
// Every call of the CUDA runtime goes through BL_CUDA_CHECK.

#include <cuda_runtime_api.h>

namespace bl::cuda {

// Throws Error (kDevice; kOutOfMemory where that is what the runtime said) in one line.
[[noreturn]] void cuda_failed(cudaError_t error, const char* expression);

inline void check(cudaError_t error, const char* expression) {
  if (error != cudaSuccess) cuda_failed(error, expression);
}

}  // namespace bl::cuda

#define BL_CUDA_CHECK(expression) ::bl::cuda::check((expression), #expression)
