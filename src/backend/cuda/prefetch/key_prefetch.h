#pragma once
// Keys and values that a GEMM prefetches to L2 for the attention behind it, or for that of the next
// block: the first ones that each CTA of that attention reads. They belong to earlier steps, so
// they are complete. A GEMM prefetches when all its own weights are requested, since memory would
// idle until the next launch begins (bench/ladder/attention_decode.md).

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "ops/attention.h"

namespace bl::cuda {

// Keys that a warp reads at a time; their rows are multiples of 16 bytes in every cache type.
inline constexpr int kWarpKeys = 16;
inline constexpr int kTileKeys = 64;  // keys that a CTA reads at a time; divides a page

// One sequence of a step as kernels see it, without its pages.
struct SpanEntry {
  std::int32_t first_token = 0;
  std::int32_t tokens = 0;
  std::int32_t past = 0;
  std::int32_t unused = 0;
};

// Returns the keys of a split when `kv_splits` divide a span evenly; the last splits may have none.
BL_HD inline int even_split_keys(int keys, int kv_splits) {
  return ((keys + kv_splits - 1) / kv_splits + kTileKeys - 1) / kTileKeys * kTileKeys;
}

// The GEMMs that prefetch keys, from the last one before the attention backwards: the one that
// makes its queries, then down and gate-up of the block before.
enum class KeyPrefetchSite { kQueries, kDown, kGate };

struct KeyRange {
  int begin = 0;
  int end = 0;
};

// The prefetch for one span of one token.
struct KeyPrefetch {
  const std::byte* k = nullptr;  // of the cache; null: nothing to prefetch
  const std::byte* v = nullptr;
  std::int64_t k_page_bytes = 0;
  std::int64_t v_page_bytes = 0;
  const SpanEntry* span = nullptr;
  const std::int32_t* pages = nullptr;
  int k_row_bytes = 0;
  int v_row_bytes = 0;
  int heads = 0;       // kv heads
  int kv_splits = 0;   // of the keys of one head, one for each CTA
  int split_keys = 0;  // 0: even_split_keys()
  KeyRange keys;       // of each piece
};

// Returns nothing to prefetch if attention runs another kernel, has a window, or reads little.
// Implemented by attention/, which knows its launches.
KeyPrefetch plan_key_prefetch(const ExecContext& ctx, const AttentionArgs& args,
                              KeyPrefetchSite site);

}  // namespace bl::cuda
