#pragma once
#include <cstdint>

#include "base/json_fwd.h"
#include "engine/request.h"

namespace bl::openai {

// "usage" of an answer: its prompts, each counted once, and all their choices.
class UsageTotal {
 public:
  // `is_first`: the choice is the first of its prompt, whose usage has what the prompt has cost.
  void add(const Usage& choice, bool is_first);
  Json json() const;

 private:
  std::int64_t prompt_ = 0;
  std::int64_t cached_ = 0;  // of the prompts' tokens, found in the cache
  std::int64_t generated_ = 0;
};

}  // namespace bl::openai
