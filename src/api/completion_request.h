#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "api/request_fields.h"

namespace bl {
class Tokenizer;
}

namespace bl::openai {

// The body of a request to /v1/completions.
struct CompletionRequest : RequestFields {
  using Prompt = std::variant<std::string, std::vector<std::int32_t>>;  // a text, or token ids
  // At least one. Each is answered with sampling.n choices.
  std::vector<Prompt> prompts{};

  // Reads a body, which is an object. The arguments and what it throws: read_request_fields().
  // Where nothing sets max_tokens, it is 16, as in OpenAI's API.
  static CompletionRequest read(const OrderedJson& body, const RequestDefaults& otherwise,
                                SamplingParams sampling);
  // The requests as the engine takes them, one for each prompt. Throws what Tokenizer::encode()
  // throws.
  std::vector<Request> engine_requests(const Tokenizer& tokenizer) const;
};

}  // namespace bl::openai
