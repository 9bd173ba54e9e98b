#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace bl {
class Tokenizer;
}

namespace bl::openai {

// The prompt of a model that is to write what stands between two texts, with the tokens that mark
// them in its vocabulary. Throws RequestError (kUnsupported), which blames "suffix", where the
// vocabulary has no such tokens.
std::vector<std::int32_t> fill_in_middle(const Tokenizer& tokenizer, std::string_view prefix,
                                         std::string_view suffix);
// Whether the vocabulary has them.
bool fills_in_middle(const Tokenizer& tokenizer);

}  // namespace bl::openai
