#include "api/token_names.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace bl::openai {

std::string TokenNames::bytes(std::int32_t id) const {
  if (tokenizer_.is_special(id)) return std::string(tokenizer_.id_to_token(id));
  std::string bytes = bytes_.of(id);
  return bytes.empty() ? tokenizer_.decode({&id, 1}, false) : bytes;
}

std::string TokenNames::said(std::int32_t id) const {
  return tokenizer_.is_special(id) ? std::string() : bytes(id);
}

std::string TokenNames::text(std::string_view bytes, const char* prefix) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string text = prefix;
  while (!bytes.empty()) {
    const std::string_view character = bytes.substr(0, utf8_size(bytes.front()));
    if (is_valid_utf8(character)) {
      text += character;
      bytes.remove_prefix(character.size());
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes.front()));
      bytes.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace bl::openai
