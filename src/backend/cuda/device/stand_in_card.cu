#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/device/stand_in.h"

namespace bl::cuda {
namespace {

__global__ void probe_kernel() {}

}  // namespace

int code_capability() {
  cudaFuncAttributes attributes{};
  BL_CUDA_CHECK(cudaFuncGetAttributes(&attributes, probe_kernel));
  // The virtual architecture, which decides __CUDA_ARCH__; binaryVersion is that of the machine
  // code.
  return attributes.ptxVersion;
}

std::size_t pad_for_stand_in(const DeviceFacts& facts, const void* kernel, int threads,
                             std::size_t dynamic_shared_bytes) {
  cudaFuncAttributes attributes{};
  BL_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  const std::size_t bytes =
      padded_shared_bytes(facts, {.threads = threads,
                                  .static_shared_bytes = attributes.sharedSizeBytes,
                                  .dynamic_shared_bytes = dynamic_shared_bytes});
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
  return bytes;
}

}  // namespace bl::cuda
