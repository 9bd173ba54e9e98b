#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/kv_layout.h"

namespace bl {

// Bytes that a model will hold on its device; a value, known before anything is loaded.
struct MemoryPlan {
  std::size_t weights = 0;
  std::size_t cache = 0;
  std::size_t work = 0;
  std::size_t adapters = 0;  // kept free for them
  std::size_t total() const { return weights + cache + work + adapters; }
};

// Bytes of cache for `sequences` sequences of `context` positions each.
std::size_t cache_bytes(std::span<const KvLayout> layers, std::int64_t context,
                        std::int64_t sequences);

// The longest context, at most `limit` positions and in whole pages unless `limit` is shorter,
// whose plan fits into `available` bytes; 0 when not even one page does.
std::int64_t longest_context(std::span<const KvLayout> layers, const MemoryPlan& plan,
                             std::size_t available, std::int64_t limit);

}  // namespace bl
