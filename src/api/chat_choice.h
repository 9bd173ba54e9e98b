#pragma once
#include <memory>
#include <vector>

#include "api/chat_turn.h"
#include "base/json_fwd.h"
#include "engine/engine.h"

namespace bl::openai {

// One whole choice of a chat's answer, as it is read.
struct ChatChoice {
  Answer answer{};
  ParsedAnswer said{};
  std::int64_t reasoning_tokens = 0;
  const char* finish = "stop";  // finish_reason, once the choice has ended without an error

  // Adds an event; `news` is what `reader`, the reader of this choice, has made of it.
  void add(Event event, const std::vector<AnswerEvent>& news, const ChoiceReader& reader);
  // {role, content, refusal}, with reasoning_content and tool_calls where the answer has them.
  Json message() const;
};

// Reads an answer that has come as a whole. Throws its error if it has ended with one.
ChatChoice read_choice(Answer answer, const std::shared_ptr<const ChatReading>& reading);

}  // namespace bl::openai
