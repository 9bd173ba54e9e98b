#pragma once
#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/prefetch/key_prefetch.h"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// By a warp of each CTA of a launch: the pieces go round the CTAs, two lanes have one.
__device__ __forceinline__ void issue_key_prefetch(const KeyPrefetch& ahead) {
  const int past = __ldg(&ahead.span->past);
  const int piece_keys =
      ahead.piece_keys > 0 ? ahead.piece_keys : even_piece_keys(past + 1, ahead.pieces);
  constexpr int kAtOnce = 16;  // pieces
  const bool of_values = lane_index() % 2 != 0;
  const int row_bytes = of_values ? ahead.v_row_bytes : ahead.k_row_bytes;
#pragma unroll 1
  for (auto i = static_cast<int>(blockIdx.x + gridDim.x * (threadIdx.x % 32 / 2));
       i < ahead.pieces * ahead.heads; i += static_cast<int>(gridDim.x) * kAtOnce) {
    const int head = i / ahead.pieces;
    const int begin = (i - head * ahead.pieces) * piece_keys + ahead.keys.begin;
    const int slot = begin % kPageSlots;
    const int wanted = ahead.keys.end - ahead.keys.begin;
    const int keys = min(min(past - begin, kPageSlots - slot), wanted) / kWarpKeys * kWarpKeys;
    if (keys <= 0) continue;
    const std::int64_t page = __ldg(ahead.pages + begin / kPageSlots);
    const std::byte* from =
        of_values ? ahead.v + page * ahead.v_page_bytes : ahead.k + page * ahead.k_page_bytes;
    from += (head * kPageSlots + slot) * row_bytes;
    prefetch_l2(from, keys * row_bytes);
  }
}

#endif

}  // namespace bl::cuda
