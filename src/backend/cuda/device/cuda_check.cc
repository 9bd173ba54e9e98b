#include "backend/cuda/device/cuda_check.h"

#include "base/error.h"

namespace bl::cuda {

void cuda_failed(cudaError_t error, const char* expression) {
  const ErrorCode code =
      error == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDevice;
  fail(code, "CUDA: {} ({}) in {}", cudaGetErrorString(error), cudaGetErrorName(error), expression);
}

}  // namespace bl::cuda
