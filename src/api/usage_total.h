#pragma once
#include <cstdint>

#include "base/json_fwd.h"
#include "engine/request.h"

namespace bl::openai {

// Adds up "usage" of an answer: each prompt once, and all choices.
class UsageTotal {
 public:
  // `is_first`: this is the first choice of its prompt, which counts the prompt's tokens.
  // `reasoning`: tokens of the choice that are reasoning.
  void add(const Usage& choice, bool is_first, std::int64_t reasoning = 0);
  Json json() const;

 private:
  std::int64_t prompt_ = 0;
  std::int64_t cached_ = 0;  // of the prompts' tokens, found in the cache
  std::int64_t generated_ = 0;
  std::int64_t reasoning_ = 0;
};

}  // namespace bl::openai
