#pragma once
#include <cstddef>
#include <type_traits>

#include "backend/cuda/attention/attention_plan.h"
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

// launch(CacheTypesConstant<types>{}) for types of kOwnKernels, from number kFrom on; false for all
// others.
template <std::size_t kFrom = 0, class Launch>
bool launch_own(CacheTypes types, const Launch& launch) {
  if constexpr (kFrom == kOwnKernels.size()) {
    return false;
  } else {
    constexpr CacheTypes kTypes = kOwnKernels[kFrom];
    if (types != kTypes) return launch_own<kFrom + 1>(types, launch);
    launch(CacheTypesConstant<kTypes>{});
    return true;
  }
}

}  // namespace bl::cuda
