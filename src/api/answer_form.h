#pragma once
#include <cstdint>
#include <span>

#include "api/chat_request.h"
#include "base/json_fwd.h"
#include "sample/constraint_spec.h"
#include "toolcall/answer_format.h"
#include "toolcall/answer_parser.h"

namespace bl {
class Tokenizer;
}

namespace bl::openai {

// What decides the form of a chat's answer. It borrows all of it.
struct AnswerFormArgs {
  const AnswerFormat& format;
  const AnswerStart& start;
  const ChatRequest& request;
  const Tokenizer& tokenizer;
  std::span<const std::int32_t> end_tokens;  // of the model
};

// The constraint of an answer:
// - reasoning is free, and what follows applies behind it;
// - with tool_choice required, or a named tool, the answer is a call, or several;
// - otherwise calls keep to the schemas of their tools from the text with which they begin;
// - the form that the request asks for (response_format and others) is that of an answer that does
//   not call.
// Throws RequestError where a call is demanded of a template without a format for calls, or of a
// tool that is not offered.
ConstraintSpec answer_constraint(const AnswerFormArgs& args);

}  // namespace bl::openai
