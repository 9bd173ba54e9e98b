#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "toolcall/answer_event.h"
#include "toolcall/answer_format.h"
#include "toolcall/answer_parser.h"
#include "toolcall/tool_set.h"

namespace bl::openai {

// How the answers to one chat request are read. All of its choices share it.
struct ChatReading {
  AnswerFormat format;
  ToolSet tools;  // empty: no text is read as a call
  AnswerOptions options;
};

// A chat request that is ready for the engine. Every protocol of chats (OpenAI's two, Anthropic's,
// Ollama's) turns its bodies into ChatRequest and from there into this.
struct ChatTurn {
  Request request;
  std::shared_ptr<const ChatReading> reading;
};

// Reads one choice of an answer while it is generated.
class ChoiceReader {
 public:
  explicit ChoiceReader(std::shared_ptr<const ChatReading> reading);
  ChoiceReader(ChoiceReader&&) noexcept = default;
  ChoiceReader& operator=(ChoiceReader&&) noexcept = default;

  // Takes the choice's next event and returns what has become certain; with the last event, the
  // rest. Every call gets an id (AnswerEvent::id) with its kCallBegin: the model's own, or a new
  // one. Throws the error of a choice that has ended with one.
  std::vector<AnswerEvent> push(const Event& event);
  // Whether a call has begun, and whether all that have begun are complete.
  bool has_calls() const { return calls_ > 0; }
  bool calls_complete() const { return calls_ == complete_; }
  // How many of the tokens so far are reasoning. Tokens of an event that also brings other text
  // count by their share of it.
  std::int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void count_reasoning(std::int64_t tokens, const std::vector<AnswerEvent>& news);

  std::shared_ptr<const ChatReading> reading_;  // the parser borrows from it
  AnswerParser parser_;
  int calls_ = 0;
  int complete_ = 0;
  bool in_reasoning_ = false;
  std::int64_t reasoning_tokens_ = 0;
  std::vector<std::string> ids_;  // of the calls so far
};

}  // namespace bl::openai
