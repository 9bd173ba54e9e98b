#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "cache/prefix_cache.h"
#include "engine/choice.h"
#include "engine/ending.h"
#include "engine/request.h"

namespace bl {

struct AcceptArgs {
  std::int32_t id = 0;
  TokenLogprobs* logprobs = nullptr;  // moved from; null: none
  std::span<const float> logits{};    // [vocab]; copied where the request wants them
  bool is_end = false;                // `id` is an end token
  bool satisfied = false;             // the constraint is satisfied, and no token can follow
};

// Makes a chosen token part of an answer: its text goes to the reader, or waits as long as a banned
// string may come of it, or a banned string is complete and the answer goes back to before it.
// Returns how the answer ends, if it does. Throws bad_alloc.
std::optional<Ending> accept_token(Choice& choice, PrefixCache& cache, AcceptArgs args);

}  // namespace bl
