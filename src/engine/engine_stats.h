#pragma once
#include <cstdint>

#include "cache/prefix_cache.h"

namespace bl {

// What an engine has done since it started, and how things stand.
struct EngineStats {
  std::int64_t running = 0;  // choices
  std::int64_t waiting = 0;
  std::int64_t steps = 0;
  double step_seconds = 0;  // steps as a whole: who runs, the model, choosing tokens, events
  double model_seconds =
      0;  // of that, the model: until what it chose or its logits are on the host
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t drafted_tokens = 0;   // guessed and verified
  std::int64_t accepted_tokens = 0;  // of them, right: each saved a sequence a step
  double draft_seconds = 0;          // spent on guessing
  double acceptance() const {
    return drafted_tokens > 0
               ? static_cast<double>(accepted_tokens) / static_cast<double>(drafted_tokens)
               : 0.0;
  }
  std::int32_t pages = 0;
  std::int32_t free_pages = 0;
  std::int32_t idle_pages = 0;  // kept for their content only
  std::int32_t pinned_pages = 0;
  std::int32_t host_pages = 0;  // that the host tier can hold
  std::int32_t free_host_pages = 0;
  double host_copy_rate = 0;  // bytes a second; 0: not measured yet
  CacheStats cache;
};

}  // namespace bl
