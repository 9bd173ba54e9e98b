#pragma once
// Every CUDA runtime call whose failure is an error goes through BL_CUDA_CHECK.

#include <cuda_runtime_api.h>

namespace bl::cuda {

// Throws an Error with a message of one line: kOutOfMemory for cudaErrorMemoryAllocation, kDevice
// for anything else.
[[noreturn]] void cuda_failed(cudaError_t error, const char* expression);

inline void check(cudaError_t error, const char* expression) {
  if (error != cudaSuccess) cuda_failed(error, expression);
}

}  // namespace bl::cuda

#define BL_CUDA_CHECK(expression) ::bl::cuda::check((expression), #expression)
