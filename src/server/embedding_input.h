#pragma once
#include <cstdint>
#include <vector>

#include "base/json_fwd.h"

namespace bl {
class Tokenizer;
}

namespace bl::server {

// The texts of a request for embeddings as token ids.
struct EmbeddingInput {
  std::vector<std::vector<std::int32_t>> texts{};
  std::int64_t tokens() const;
};

// Reads "input": a text, a list of token ids (texts may stand among them), an object with
// "prompt_string" or "content" (a list of text parts), or a list of those. Text never becomes a
// control token. Throws RequestError, naming `field`, for anything else, for an empty list, and for
// a text without any token where the tokenizer has none to put around it.
EmbeddingInput read_embedding_input(const OrderedJson& input, const char* field,
                                    const Tokenizer& tokenizer);

}  // namespace bl::server
