#pragma once
#include <cstdint>
#include <span>

#include "api/answer_head.h"
#include "api/chat_choice.h"
#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/logprobs.h"
#include "base/json_fwd.h"
#include "engine/engine.h"

namespace bl::openai {

// A prompt, and all choices of its answer in order.
struct AnsweredPrompt {
  std::span<const std::int32_t> prompt;
  std::span<const Answer> choices;
};

// A chat's prompt, and all choices of its answer in order.
struct AnsweredChat {
  std::span<const std::int32_t> prompt;
  std::span<const ChatChoice> choices;
};

// Return the whole answer to a request. They throw the error of a choice that has ended with one.
Json chat_completion(const AnswerHead& head, const ChatRequest& request,
                     const AnsweredChat& answered, const Logprobs& logprobs);
// `answered` has the request's prompts in order.
Json text_completion(const AnswerHead& head, const CompletionRequest& request,
                     std::span<const AnsweredPrompt> answered, const Logprobs& logprobs);

}  // namespace bl::openai
