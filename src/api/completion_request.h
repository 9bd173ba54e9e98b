#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
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
  bool tells_prompt_logprobs = false;   // the answer has them as a member of their own
  bool echo = false;                    // the answer's text begins with the prompt
  std::optional<std::string> suffix{};  // what follows the answer; it is to fill in the middle

  // Reads a body. For arguments and errors see read_request_fields(). max_tokens is 16 where
  // nothing sets it, as in OpenAI's API.
  static CompletionRequest read(const OrderedJson& body, const RequestDefaults& otherwise,
                                SamplingParams sampling);
  // Encodes the prompts, and makes one request of each. Throws what Tokenizer::encode() throws, and
  // RequestError for a suffix where the tokenizer has no tokens for it, or a prompt without tokens.
  std::vector<Request> engine_requests(const Tokenizer& tokenizer) const;
  // The text of prompt number `index`, for echo.
  std::string prompt_text(std::size_t index, const Tokenizer& tokenizer) const;
};

}  // namespace bl::openai
