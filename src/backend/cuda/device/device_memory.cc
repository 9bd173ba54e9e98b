#include "backend/cuda/device/device_memory.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/device/cuda_check.h"
#include "base/error.h"

namespace bl::cuda {

std::shared_ptr<std::byte> DeviceMemory::take(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    std::size_t free = 0;
    std::size_t total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    fail(ErrorCode::kOutOfMemory, "{}: {} bytes of its memory were asked for, {} are free", card_,
         bytes, free);
  }
  BL_CUDA_CHECK(error);
  const std::size_t now = counts_->now += bytes;
  std::size_t peak = counts_->peak;
  while (peak < now && !counts_->peak.compare_exchange_weak(peak, now)) {
  }
  return {static_cast<std::byte*>(data), [counts = counts_, bytes](std::byte* p) {
            cudaFree(p);
            counts->now -= bytes;
          }};
}

}  // namespace bl::cuda
