#include "text/token_bytes.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/decode_stages.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// A letter or digit whose token leaves text of its own, whatever follows it.
std::optional<std::int32_t> find_anchor(const Tokenizer& tokenizer) {
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) continue;
    const std::string_view token = tokenizer.id_to_token(id);
    if (token.size() != 1) continue;
    const char c = token.front();
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (plain && tokenizer.decode({&id, 1}, true) == token) return id;
  }
  return std::nullopt;
}

// The bytes that the characters of a byte-level token stand for; nothing if one stands for none.
std::optional<std::string> bytes_of_characters(std::string_view token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint point = code_point_at(token, at);
    const int byte = byte_level_byte(point.value);
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    at += point.size;
  }
  return bytes;
}

// The bytes of a token that is only part of a character, and so is no text by itself.
std::string part_of_character(std::string_view token) {
  const int byte = byte_token_value(token);
  if (byte >= 0) return std::string(1, static_cast<char>(byte));
  return bytes_of_characters(token).value_or(std::string());
}

}  // namespace

TokenBytes::TokenBytes(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), anchor_(find_anchor(tokenizer)) {
  if (anchor_) before_ = tokenizer.decode({&*anchor_, 1}, true);
}

std::string TokenBytes::of(std::int32_t id) const {
  const std::string_view token = tokenizer_.id_to_token(id);
  if (token.empty() || tokenizer_.is_special(id)) return {};
  const std::array<std::int32_t, 2> pair{anchor_.value_or(id), id};
  const std::string text =
      tokenizer_.decode(anchor_ ? std::span(pair) : std::span(pair).last(1), true);
  // If the decoder changes the text before the token, nothing can be said about the token alone.
  if (!text.starts_with(before_)) return {};
  std::string bytes = text.substr(before_.size());
  if (bytes.find(kReplacement) != bytes.npos && token.find(kReplacement) == token.npos) {
    bytes = part_of_character(token);
  }
  return bytes;
}

std::vector<std::string> token_bytes(const Tokenizer& tokenizer) {
  const TokenBytes bytes(tokenizer);
  std::vector<std::string> all(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    all[static_cast<std::size_t>(id)] = bytes.of(id);
  }
  return all;
}

}  // namespace bl
