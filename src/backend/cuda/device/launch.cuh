#pragma once
// Kernel launches with programmatic dependent launch: on compute capability 9.0 and later, the
// start of a kernel overlaps the end of the kernel before it.
//
// Contract of every kernel of this backend: it calls pdl_trigger() as soon as it has started, which
// only lets the CTAs of the next kernel become resident; they wait for this kernel's end by
// themselves. It calls pdl_wait() before it reads anything that an earlier kernel writes, before it
// writes anything that an earlier kernel reads or writes, and in any case before it ends.

#include <cuda_runtime.h>

#include <utility>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/device/cuda_device.h"
#include "backend/cuda/device/stand_in.h"

namespace bl::cuda {

// Waits until all earlier kernels have ended and their writes are visible.
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the next kernel in the stream to start.
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
  bool dependent = false;  // launch with the attribute for programmatic dependent launch
  unsigned cluster = 0;    // CTAs of a cluster, neighbours along x; 0: no clusters
  const DeviceFacts* stand_in = nullptr;  // the card, if it acts as an earlier one (stand_in.h)
};

inline LaunchShape shape_of(const ExecContext& ctx, dim3 grid, dim3 block,
                            std::size_t shared_bytes = 0) {
  const CudaDevice& device = cuda_device(ctx);
  const DeviceFacts& facts = device.facts();
  return {.grid = grid,
          .block = block,
          .shared_bytes = shared_bytes,
          .stream = device.stream,
          .dependent = device.dependent_launch,
          .stand_in = facts.is_stand_in() ? &facts : nullptr};
}

// Opts a kernel in to `bytes` of dynamic shared memory, which is only needed above 48 KiB.
template <class... Parameters>
void allow_shared_bytes(void (*kernel)(Parameters...), std::size_t bytes) {
  constexpr std::size_t kWithoutOptIn = 48 << 10;
  if (bytes <= kWithoutOptIn) return;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
}

// Launches `kernel`, with the arguments converted to its parameter types.
template <class... Parameters, class... Arguments>
void launch(const LaunchShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  if (shape.stand_in != nullptr) {
    const unsigned threads = shape.block.x * shape.block.y * shape.block.z;
    config.dynamicSmemBytes =
        pad_for_stand_in(*shape.stand_in, reinterpret_cast<const void*>(kernel),
                         static_cast<int>(threads), shape.shared_bytes);
  }
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
