#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "text/token_bytes.h"

namespace bl {
class Tokenizer;
}

namespace bl::openai {

// The names of tokens in JSON, whose strings are UTF-8 while tokens are any bytes.
class TokenNames {
 public:
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // The tokenizer must outlive it.
  explicit TokenNames(const Tokenizer& tokenizer) : tokenizer_(tokenizer), bytes_(tokenizer) {}

  // The bytes that a token adds in the middle of a text; for a special token, its name.
  std::string bytes(std::int32_t id) const;
  // The bytes that a token adds to the text of an answer; none for a special token.
  std::string said(std::int32_t id) const;
  // bytes() as text.
  std::string name(std::int32_t id, const char* prefix) const { return text(bytes(id), prefix); }
  // The bytes of a token as text. Where they are not UTF-8, since the token is a piece of a
  // character, each such byte stands as \xe2, and `prefix` before them all.
  static std::string text(std::string_view bytes, const char* prefix);

 private:
  const Tokenizer& tokenizer_;
  TokenBytes bytes_;
};

}  // namespace bl::openai
