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

// launch(CacheTypesConstant<types>{}) for types whose rows are codes, of those that there are
// together (parse_cache_types).
template <CacheTypes kFirst, CacheTypes... kOthers, class Launch>
void launch_for_one_of(CacheTypes types, const Launch& launch) {
  if (types == kFirst) return launch(CacheTypesConstant<kFirst>{});
  if constexpr (sizeof...(kOthers) > 0) {
    launch_for_one_of<kOthers...>(types, launch);
  } else {
    BL_CHECK(types == kFirst);
  }
}
template <class Launch>
void launch_for_codes(CacheTypes types, const Launch& launch) {
  launch_for_one_of<CacheType::kFp8, CacheType::kQ8, CacheType::kQ6, CacheType::kQ4,
                    CacheTypes(CacheType::kQ8, CacheType::kQ6),
                    CacheTypes(CacheType::kQ8, CacheType::kQ4),
                    CacheTypes(CacheType::kQ6, CacheType::kQ4)>(types, launch);
}

}  // namespace bl::cuda
