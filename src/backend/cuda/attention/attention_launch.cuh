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

template <CacheTypes kTypes>
using CacheTypesConstant = std::integral_constant<CacheTypes, kTypes>;

// launch(CacheTypesConstant<types>{}) for types whose rows are codes: all of kAllCacheTypes, from
// number kFrom on, but for those of plain floats.
template <std::size_t kFrom = 0, class Launch>
void launch_for_codes(CacheTypes types, const Launch& launch) {
  if constexpr (kFrom == kAllCacheTypes.size()) {
    BL_CHECK(false);
  } else {
    constexpr CacheTypes kTypes = kAllCacheTypes[kFrom];
    if constexpr (kTypes.k != CacheType::kF32 && kTypes.k != CacheType::kF16) {
      if (types == kTypes) return launch(CacheTypesConstant<kTypes>{});
    }
    launch_for_codes<kFrom + 1>(types, launch);
  }
}

}  // namespace bl::cuda
