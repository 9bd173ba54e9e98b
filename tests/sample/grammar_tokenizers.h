#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace bl::test {

// Tokenizers made for the tests of constraints: every byte is a token (ids 0 … 255), then `words`
// (bytes, which may cut characters), then the special tokens <s>, </s>.
struct GrammarTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::int32_t end = 0;  // </s>
};
std::vector<std::string> json_words();
GrammarTokenizer byte_level_tokenizer(const std::vector<std::string>& words = json_words());
// ▁ for spaces, <0xHH> for bytes: a decoder as of converted sentencepiece models.
GrammarTokenizer byte_fallback_tokenizer(const std::vector<std::string>& words = json_words());

}  // namespace bl::test
