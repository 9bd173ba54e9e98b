#pragma once
#include <cstddef>
#include <type_traits>

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

}  // namespace bl::cuda
