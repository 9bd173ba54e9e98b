#include "grammar/ebnf_literal.h"

#include <fmt/format.h>

namespace bl {

std::string ebnf_literal(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      made += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      made += fmt::format("\\x{:02x}", byte);
    } else {
      made += c;
    }
  }
  return made + '"';
}

}  // namespace bl
