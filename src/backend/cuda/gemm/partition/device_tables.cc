#include "backend/cuda/gemm/partition/device_tables.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/device/cuda_check.h"

namespace bl::cuda {

DeviceTables::~DeviceTables() {
  for (const auto& [host, device] : copies_) cudaFree(device);
}

const void* DeviceTables::copy(const void* host, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void*& device = copies_[host];
  if (device == nullptr) {
    BL_CUDA_CHECK(cudaMalloc(&device, bytes));
    BL_CUDA_CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
  }
  return device;
}

const std::int32_t* DeviceTables::begins(const CtaRanges& ranges) {
  return static_cast<const std::int32_t*>(copy(ranges.begins.data(), ranges.begins.size_bytes()));
}

const RegsQuad* DeviceTables::quads(const RegsPlan& plan) {
  return static_cast<const RegsQuad*>(
      copy(plan.quads.data(), plan.quads.size() * sizeof(RegsQuad)));
}

}  // namespace bl::cuda
