#pragma once
#include "api/request_fields.h"
#include "base/json.h"

namespace bl {
class ModelText;
}

namespace bl::openai {

// The body of a request to /v1/chat/completions.
struct ChatRequest : RequestFields {
  OrderedJson messages{};  // checked, in the form of chat_messages.h
  OrderedJson tools{};     // the tools that the model is told of; null: none
  // Further variables of the template: chat_template_kwargs and the fields that stand for some.
  OrderedJson template_variables{};

  // Reads a body. For arguments and errors see read_request_fields().
  static ChatRequest read(const OrderedJson& body, const RequestDefaults& otherwise,
                          const SamplingParams& sampling);
  // Renders the model's chat template and encodes the result. Throws what ChatTemplate::render()
  // and Tokenizer::encode() throw, and kNotFound where the model has no template.
  Request engine_request(const ModelText& text) const;
};

}  // namespace bl::openai
