#pragma once
#include <vector>

#include "ops/kv_layout.h"
#include "support/thorough.h"

namespace bl::test {

// For tests that would take long over kAllCacheTypes: one type of each way through the code, which
// are floats of each size, widths of whole and of split fields, and pairs. A thorough run has all
// types that are one, and pairs that have each width of keys and of values, more bits on either
// side, and kernels of their own and shared ones on a card.
inline std::vector<CacheTypes> sampled_cache_types() {
  if (!thorough()) {
    return {CacheType::kF32,
            CacheType::kF16,
            CacheType::kFp8,
            CacheType::kQ4,
            CacheType::kQ5,
            CacheTypes(CacheType::kQ8, CacheType::kQ4),
            CacheTypes(CacheType::kQ3, CacheType::kQ2)};
  }
  std::vector<CacheTypes> sample;
  for (const CacheTypes types : kAllCacheTypes) {
    if (types.are_one()) sample.push_back(types);
  }
  for (const CacheTypes types :
       {CacheTypes(CacheType::kQ8, CacheType::kQ6), CacheTypes(CacheType::kQ8, CacheType::kQ4),
        CacheTypes(CacheType::kQ6, CacheType::kQ4), CacheTypes(CacheType::kQ7, CacheType::kQ5),
        CacheTypes(CacheType::kQ5, CacheType::kQ3), CacheTypes(CacheType::kQ3, CacheType::kQ2),
        CacheTypes(CacheType::kQ4, CacheType::kQ7), CacheTypes(CacheType::kQ2, CacheType::kQ8)}) {
    sample.push_back(types);
  }
  return sample;
}

}  // namespace bl::test
