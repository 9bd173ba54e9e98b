#include "api/usage_total.h"

#include "base/json.h"

namespace bl::openai {

void UsageTotal::add(const Usage& choice, bool is_first, std::int64_t reasoning) {
  generated_ += choice.generated_tokens;
  reasoning_ += reasoning;
  if (!is_first) return;
  prompt_ += choice.prompt_tokens;
  cached_ += choice.cached_tokens;
}

Json UsageTotal::json() const {
  return {{"prompt_tokens", prompt_},
          {"completion_tokens", generated_},
          {"total_tokens", prompt_ + generated_},
          {"prompt_tokens_details", {{"cached_tokens", cached_}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning_}}}};
}

}  // namespace bl::openai
