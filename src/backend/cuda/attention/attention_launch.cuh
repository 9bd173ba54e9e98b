#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>

#include "backend/cuda/device/launch.cuh"
#include "base/check.h"
#include "ops/kv_layout.h"

namespace bl::cuda {

// Lets a kernel take so much dynamic shared memory; a launch within 48 KiB needs no leave.
template <class... Parameters>
void allow_shared_bytes(void (*kernel)(Parameters...), std::size_t bytes) {
  constexpr std::size_t kWithoutLeave = 48 << 10;
  if (bytes <= kWithoutLeave) return;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
}

template <CacheType kType>
using CacheTypeConstant = std::integral_constant<CacheType, kType>;

// launch(CacheTypeConstant<type>{}) for a type whose rows are codes.
template <class Launch>
void launch_for_codes(CacheType type, const Launch& launch) {
  switch (type) {
    case CacheType::kFp8:
      return launch(CacheTypeConstant<CacheType::kFp8>{});
    case CacheType::kQ8:
      return launch(CacheTypeConstant<CacheType::kQ8>{});
    case CacheType::kQ6:
      return launch(CacheTypeConstant<CacheType::kQ6>{});
    case CacheType::kQ4:
      return launch(CacheTypeConstant<CacheType::kQ4>{});
    case CacheType::kF32:
    case CacheType::kF16:
      break;
  }
  BL_CHECK(false);
}

// launch() of clusters of `ctas` CTAs side by side.
template <class... Parameters, class... Arguments>
void launch_clusters(const LaunchShape& shape, unsigned ctas, void (*kernel)(Parameters...),
                     Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = ctas;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  config.attrs = attributes;
  config.numAttrs = shape.dependent ? 2 : 1;
  BL_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel,
                                   static_cast<Parameters>(std::forward<Arguments>(arguments))...));
}

}  // namespace bl::cuda
