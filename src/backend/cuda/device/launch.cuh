#pragma once
// Launching kernels, so that on cards that can (compute capability 9 and later) the next kernel's
// beginning overlaps this one's end.
//
// Contract of every kernel of this backend: it calls pdl_wait() before it touches anything
// that an earlier kernel wrote or reads, and before it ends; pdl_trigger() as soon as it has
// started (it only lets the next kernel's CTAs become resident, they wait for our end themselves).

#include <cuda_runtime.h>

#include <utility>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/device/cuda_device.h"

namespace bl::cuda {

// The work before it must be complete and visible.
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void pdl_trigger() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic shared memory
  cudaStream_t stream = nullptr;
  bool dependent = false;  // the card knows programmatic dependent launch
  unsigned cluster = 0;    // CTAs side by side along x that are a cluster, if any are
};

inline LaunchShape shape_of(const ExecContext& ctx, dim3 grid, dim3 block,
                            std::size_t shared_bytes = 0) {
  const CudaDevice& device = cuda_device(ctx);
  return {grid, block, shared_bytes, device.stream, device.dependent_launch};
}

// Opts a kernel in to so much dynamic shared memory; up to 48 KiB it need not.
template <class... Parameters>
void allow_shared_bytes(void (*kernel)(Parameters...), std::size_t bytes) {
  constexpr std::size_t kWithoutOptIn = 48 << 10;
  if (bytes <= kWithoutOptIn) return;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
}

template <class... Parameters, class... Arguments>
void launch(const LaunchShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (shape.dependent) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 0) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {shape.cluster, 1, 1};
  }
  BL_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel,
                                   static_cast<Parameters>(std::forward<Arguments>(arguments))...));
}

}  // namespace bl::cuda
