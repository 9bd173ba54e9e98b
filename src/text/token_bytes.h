#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bl {

class Tokenizer;

// What a token adds to a text within which it stands, as bytes, which need not be whole characters
// (byte-level tokens, <0xHH>). Found by decoding, so that it holds whatever the decoder does: a
// space before a word ("▁the", WordPiece), replaced texts, stripped ones. What a decoder does
// between certain tokens only (clean-up of spaces before punctuation) is not in it.
class TokenBytes {
 public:
  // The tokenizer must outlive it.
  explicit TokenBytes(const Tokenizer& tokenizer);
  // Empty for special tokens and for ids that do not exist. About a microsecond.
  std::string of(std::int32_t id) const;

 private:
  const Tokenizer& tokenizer_;
  std::optional<std::int32_t> anchor_;  // a token that it can stand behind
  std::string before_;                  // the text of that
};

// The same of the whole vocabulary: [vocab_size()]. Do it once a model.
std::vector<std::string> token_bytes(const Tokenizer& tokenizer);

}  // namespace bl
