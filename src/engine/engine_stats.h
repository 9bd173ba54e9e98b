#pragma once
#include <cstdint>

#include "cache/prefix_cache.h"

namespace bl {

// What an engine has done since it started, and how things stand.
struct EngineStats {
  std::int64_t running = 0;  // choices
  std::int64_t waiting = 0;
  std::int64_t steps = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  std::int64_t preemptions = 0;
  std::int32_t pages = 0;
  std::int32_t free_pages = 0;
  std::int32_t idle_pages = 0;  // kept for their content only
  CacheStats cache;
};

}  // namespace bl
