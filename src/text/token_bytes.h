#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bl {

class Tokenizer;

// The bytes that a token adds to a text in which it stands; they need not be whole characters
// (byte-level tokens, <0xHH>). They are found by decoding, so that they hold whatever the decoder
// does: a space before a word ("▁the", WordPiece), replaced or stripped text. Changes that a
// decoder makes only between certain tokens (clean-up of spaces before punctuation) are not
// included.
class TokenBytes {
 public:
  // The tokenizer must outlive this object.
  explicit TokenBytes(const Tokenizer& tokenizer);
  // The bytes of token `id`; empty for special tokens and for ids that do not exist. Takes about a
  // microsecond.
  std::string of(std::int32_t id) const;

 private:
  const Tokenizer& tokenizer_;
  std::optional<std::int32_t> anchor_;  // a token to put before the one in question
  std::string before_;                  // its text
};

// The bytes of every token of the vocabulary: [vocab_size()]. Do this once per model.
std::vector<std::string> token_bytes(const Tokenizer& tokenizer);

}  // namespace bl
