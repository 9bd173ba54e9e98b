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

  // Reads a body. For arguments and errors see read_request_fields(). max_tokens is 16 where
  // nothing sets it, as in OpenAI's API.
  static CompletionRequest read(const OrderedJson& body, const RequestDefaults& otherwise,
                                SamplingParams sampling);
  // Encodes the prompts, and makes one request of each. Throws what Tokenizer::encode() throws.
  std::vector<Request> engine_requests(const Tokenizer& tokenizer) const;
};

}  // namespace bl::openai
