#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "api/chat_turn.h"
#include "api/request_fields.h"
#include "base/json.h"
#include "text/prompt_guard.h"

namespace bl {
class ModelText;
}

namespace bl::openai {

class AnswerFormats;
struct TemplateFormat;

// Whether the answer may, must or must not call tools.
struct ToolChoice {
  enum class Kind { kAuto, kNone, kRequired };
  Kind kind = Kind::kAuto;
  std::vector<std::string> names{};  // the functions that may be called; empty: all
  bool parallel = true;              // the answer may have several calls
};

// How many tokens reasoning may take.
struct ReasoningBudget {
  std::int64_t tokens = -1;  // negative: no limit
  std::string message{};     // is put at its end where the limit ends it
};

// The body of a request to /v1/chat/completions.
struct ChatRequest : RequestFields {
  OrderedJson messages{};  // checked, in the form of chat_messages.h
  OrderedJson tools{};     // the tools that the model is told of; null: none
  ToolChoice tool_choice{};
  ReasoningBudget reasoning_budget{};
  bool separate_reasoning = true;  // reasoning_format: otherwise reasoning is content
  bool special_tokens_in_messages = false;
  bool timings_per_token = false;  // a stream tells how fast it is made in every chunk
  bool return_progress = false;    // a stream tells how far the prompt is
  bool verbose = false;            // the answer tells the prompt
  bool continues_message = false;  // the answer goes on with the last message, an assistant's
  // Further variables of the template: chat_template_kwargs and the fields that stand for some.
  OrderedJson template_variables{};

  // Reads a body. For arguments and errors see read_request_fields().
  static ChatRequest read(const OrderedJson& body, const RequestDefaults& otherwise,
                          const SamplingParams& sampling);
  // Renders the model's chat template and encodes the result; `formats` belongs to this model.
  // Throws what render_chat() and Tokenizer::encode() throw, and kNotFound where the model has no
  // template.
  ChatTurn turn(const ModelText& text, AnswerFormats& formats) const;
  // The text of that prompt. Throws what render_chat() throws, and kNotFound as turn() does.
  std::string prompt_text(const ModelText& text, AnswerFormats& formats) const;

 private:
  struct Prompt {
    GuardedPrompt text;
    AnswerStart start;
  };
  Prompt render(const ModelText& text, const TemplateFormat& format) const;
  void skip_reasoning(const ModelText& text, OrderedJson variables, std::int64_t now,
                      const AnswerFormat& format, Prompt& prompt) const;
  OrderedJson prompt_variables() const;
};

}  // namespace bl::openai
