#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "api/chat_request.h"
#include "engine/request.h"

namespace bl::openai {

struct ReasoningLimitArgs {
  std::shared_ptr<const ChatReading> reading;  // its format has reasoning
  const Tokenizer& tokenizer;                  // outlives the hook
  ReasoningBudget budget;
  std::int64_t prompt = 0;  // tokens of the prompt
  std::size_t choices = 1;  // how many answers are made
};

// Returns a hook that counts the tokens of reasoning. Where they reach the budget, it replaces what
// the model has chosen by the tokens of the budget's message and of the marker that closes
// reasoning.
TokenHook limit_reasoning(ReasoningLimitArgs args);

}  // namespace bl::openai
