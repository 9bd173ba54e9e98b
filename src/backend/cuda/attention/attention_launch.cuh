#pragma once
#include <cstddef>
#include <type_traits>

#include "backend/cuda/attention/attention_plan.h"
#include "backend/cuda/device/launch.cuh"
#include "base/check.h"
#include "ops/kv_layout.h"

namespace bl::cuda {

template <CacheTypes kTypes>
using CacheTypesConstant = std::integral_constant<CacheTypes, kTypes>;

// Calls launch(CacheTypesConstant<types>{}) if `types` is among kOwnKernels from index kFrom on;
// returns whether it is.
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
