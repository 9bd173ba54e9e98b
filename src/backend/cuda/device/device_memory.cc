#include "backend/cuda/device/device_memory.h"

#include <cstdint>

#include "backend/cuda/device/cuda_check.h"
#include "base/error.h"

namespace bl::cuda {

void DeviceMemory::check_taken(cudaError_t error, std::size_t bytes) const {
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    std::size_t free = 0;
    std::size_t total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    fail(ErrorCode::kOutOfMemory, "{}: {} bytes of its memory were asked for, {} are free", card_,
         bytes, free);
  }
  BL_CUDA_CHECK(error);
}

template <class Release>
std::shared_ptr<std::byte> DeviceMemory::counted(void* data, std::size_t bytes, Release release) {
  const std::size_t now = counts_->now += bytes;
  std::size_t peak = counts_->peak;
  while (peak < now && !counts_->peak.compare_exchange_weak(peak, now)) {
  }
  return {static_cast<std::byte*>(data), [counts = counts_, bytes, release](std::byte* p) {
            release(p);
            counts->now -= bytes;
          }};
}

std::shared_ptr<std::byte> DeviceMemory::take(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = nullptr;
  cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation && pool_ != nullptr) {
    // What take_ordered() has got back may be what is missing.
    static_cast<void>(cudaGetLastError());
    BL_CUDA_CHECK(cudaDeviceSynchronize());
    BL_CUDA_CHECK(cudaMemPoolTrimTo(pool_, 0));
    error = cudaMalloc(&data, bytes);
  }
  check_taken(error, bytes);
  return counted(data, bytes, [](std::byte* p) { cudaFree(p); });
}

cudaMemPool_t DeviceMemory::pool() {
  if (asked_for_pool_) return pool_;
  asked_for_pool_ = true;
  int device = 0;
  int supported = 0;
  BL_CUDA_CHECK(cudaGetDevice(&device));
  BL_CUDA_CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device));
  if (supported == 0) return nullptr;
  BL_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool_, device));
  std::uint64_t kept = UINT64_MAX;  // nothing goes back to the driver before it is missing
  BL_CUDA_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept));
  return pool_;
}

std::shared_ptr<std::byte> DeviceMemory::take_ordered(std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  if (pool() == nullptr) return take(bytes);
  void* data = nullptr;
  cudaError_t error = cudaMallocAsync(&data, bytes, stream);
  if (error == cudaErrorMemoryAllocation) {
    // The pool may hold enough in pieces that are too small: they go back, and come as one.
    static_cast<void>(cudaGetLastError());
    BL_CUDA_CHECK(cudaStreamSynchronize(stream));
    BL_CUDA_CHECK(cudaMemPoolTrimTo(pool_, 0));
    error = cudaMallocAsync(&data, bytes, stream);
  }
  check_taken(error, bytes);
  return counted(data, bytes, [stream](std::byte* p) { cudaFreeAsync(p, stream); });
}

bool is_reachable(const void* pointer) {
  cudaPointerAttributes attributes{};
  BL_CUDA_CHECK(cudaPointerGetAttributes(&attributes, pointer));
  return attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeDevice;
}

}  // namespace bl::cuda
