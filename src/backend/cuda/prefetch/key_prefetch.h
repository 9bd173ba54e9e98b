#pragma once
// Keys and values that GEMMs ask L2 for on behalf of attention behind them, or of the next block's
// attention: the first ones that each CTA of that attention reads. They are of earlier steps. A
// GEMM asks when it has asked for all of its own weights, since memory would have nothing to do
// until the next launch begins (bench/ladder/decode_attention).

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "ops/attention.h"

namespace bl::cuda {

// Keys that a warp reads at a time; their rows are a multiple of 16 bytes, however they are coded.
inline constexpr int kWarpKeys = 16;
inline constexpr int kTileKeys = 64;  // keys that a CTA reads at a time; divides a page

// One sequence of a step as kernels see it, without its pages.
struct SpanEntry {
  std::int32_t first_token = 0;
  std::int32_t tokens = 0;
  std::int32_t past = 0;
  std::int32_t unused = 0;
};

// Keys of a piece where `pieces` share a span's evenly; the last pieces may have none.
BL_HD inline int even_piece_keys(int keys, int pieces) {
  return ((keys + pieces - 1) / pieces + kTileKeys - 1) / kTileKeys * kTileKeys;
}

// The GEMMs that prefetch keys, the last one before the attention first: the one that makes its
// queries; down and gate-up of the block before.
enum class KeyPrefetchSite { kQueries, kDown, kGate };

struct KeyRange {
  int begin = 0;
  int end = 0;
};

// What to prefetch for one span of one token.
struct KeyPrefetch {
  const std::byte* k = nullptr;  // of the cache; null: nothing
  const std::byte* v = nullptr;
  std::int64_t k_page_bytes = 0;
  std::int64_t v_page_bytes = 0;
  const SpanEntry* span = nullptr;
  const std::int32_t* pages = nullptr;
  int k_row_bytes = 0;
  int v_row_bytes = 0;
  int heads = 0;       // kv heads
  int pieces = 0;      // of one head's keys, a CTA each
  int piece_keys = 0;  // 0: even_piece_keys()
  KeyRange keys;       // of each piece
};

// Nothing where attention takes another way, sees a window, or reads little. Implemented by
// attention/, which knows its launches.
KeyPrefetch plan_key_prefetch(const ExecContext& ctx, const AttentionArgs& args,
                              KeyPrefetchSite site);

}  // namespace bl::cuda
