#pragma once
#include "api/request_fields.h"
#include "base/json.h"

namespace bl {
class ModelText;
}

namespace bl::openai {

// The body of a request to /v1/chat/completions.
struct ChatRequest : RequestFields {
  OrderedJson messages{};            // checked, as templates take them (chat_messages.h)
  OrderedJson tools{};               // that the model is told of; null: none
  OrderedJson template_variables{};  // further ones that the template hears of

  // Reads a body, which is an object. The arguments and what it throws: read_request_fields().
  static ChatRequest read(const OrderedJson& body, const RequestDefaults& otherwise,
                          const SamplingParams& sampling);
  // The request as the engine takes it. Throws what ChatTemplate::render() and
  // Tokenizer::encode() throw, and kNotFound where the model has no template.
  Request engine_request(const ModelText& text) const;
};

}  // namespace bl::openai
