#pragma once
// The first keys and values that each CTA of attention behind a product reads, or of the next
// block's. They are of earlier steps: the product has them brought into the second level of the
// cache when it has asked for all of its own weights, and memory would have nothing to do until the
// launch behind begins (bench/ladder/decode_attention).

#include <cstddef>
#include <cstdint>

#include "backend/cuda/attention/attention_plan.h"
#include "ops/attention.h"

namespace bl::cuda {

// Of one span of one token.
struct KeyPrefetch {
  const std::byte* k = nullptr;  // of the cache; null: nothing is asked for
  const std::byte* v = nullptr;
  std::int64_t k_page_bytes = 0;
  std::int64_t v_page_bytes = 0;
  const SpanEntry* span = nullptr;
  const std::int32_t* pages = nullptr;
  int k_row_bytes = 0;
  int v_row_bytes = 0;
  int heads = 0;       // of keys
  int pieces = 0;      // of a head's, a CTA each
  int piece_keys = 0;  // 0: even_piece_keys
  KeyRange keys;       // that are asked for of each piece
};

// None where attention takes another way, sees a window, or reads little.
KeyPrefetch plan_key_prefetch(const ExecContext& ctx, const AttentionArgs& args,
                              KeyPrefetchSite site);

}  // namespace bl::cuda
