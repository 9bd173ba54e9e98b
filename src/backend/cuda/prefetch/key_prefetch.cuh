#pragma once
#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/prefetch/key_prefetch.h"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Called by one warp of each CTA: KV splits alternate over the CTAs, with two lanes (k, v) for
// each.
__device__ __forceinline__ void issue_key_prefetch(const KeyPrefetch& prefetch) {
  const int past = __ldg(&prefetch.span->past);
  const int split_keys =
      prefetch.split_keys > 0 ? prefetch.split_keys : even_split_keys(past + 1, prefetch.kv_splits);
  constexpr int kAtOnce = 16;  // KV splits
  const bool of_values = lane_index() % 2 != 0;
  const int row_bytes = of_values ? prefetch.v_row_bytes : prefetch.k_row_bytes;
#pragma unroll 1
  for (auto i = static_cast<int>(blockIdx.x + gridDim.x * (threadIdx.x % 32 / 2));
       i < prefetch.kv_splits * prefetch.heads; i += static_cast<int>(gridDim.x) * kAtOnce) {
    const int head = i / prefetch.kv_splits;
    const int begin = (i - head * prefetch.kv_splits) * split_keys + prefetch.keys.begin;
    const int slot = begin % kPageSlots;
    const int wanted = prefetch.keys.end - prefetch.keys.begin;
    const int keys = min(min(past - begin, kPageSlots - slot), wanted) / kWarpKeys * kWarpKeys;
    if (keys <= 0) continue;
    const std::int64_t page = __ldg(prefetch.pages + begin / kPageSlots);
    const std::byte* from = of_values ? prefetch.v + page * prefetch.v_page_bytes
                                      : prefetch.k + page * prefetch.k_page_bytes;
    from += (head * kPageSlots + slot) * row_bytes;
    prefetch_l2(from, keys * row_bytes);
  }
}

#endif

}  // namespace bl::cuda
