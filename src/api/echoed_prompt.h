#pragma once
#include <cstddef>
#include <string>

#include "api/completion_request.h"
#include "api/logprobs.h"

namespace bl::openai {

// The prompt as the beginning of a completion's text; empty where the request does not ask for it.
struct EchoedPrompt {
  std::string text{};
  std::size_t characters = 0;

  // Returns it for prompt number `index` of the request.
  static EchoedPrompt of(const CompletionRequest& request, std::size_t index,
                         const Logprobs& logprobs);
};

}  // namespace bl::openai
