#pragma once
#include <cstdint>

#include "cache/prefix_cache.h"

namespace bl {

// What an engine has done since it started, and its state now.
struct EngineStats {
  std::int64_t running = 0;  // sequences; with guidance an answer has two
  std::int64_t waiting = 0;
  std::int64_t steps = 0;    // of the model, those for embeddings too
  double step_seconds = 0;   // whole steps for answers: planning, the model, sampling, events
  double model_seconds = 0;  // of them, waiting for the model's tokens or logits on the host
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t draft_rounds = 0;     // guesses behind one answer in one step are a round
  std::int64_t drafted_tokens = 0;   // guessed and verified
  std::int64_t accepted_tokens = 0;  // right guesses; each saved a sequence a step
  double draft_seconds = 0;          // time for making guesses
  std::int32_t pages = 0;
  std::int32_t free_pages = 0;
  std::int32_t idle_pages = 0;  // kept only for their contents
  std::int32_t pinned_pages = 0;
  std::int32_t host_pages = 0;  // room of the host tier
  std::int32_t free_host_pages = 0;
  double host_copy_rate = 0;  // bytes per second; 0: not measured yet
  CacheStats cache;
};

}  // namespace bl
