#include "text/byte_level.h"

#include <cstdint>

#include "base/utf8.h"

namespace bl {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<std::int16_t, 0x144> bytes{};

  constexpr Alphabet() {
    for (auto& byte : bytes) byte = -1;
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const auto i = static_cast<std::size_t>(byte);
      characters[i] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      bytes[characters[i]] = static_cast<std::int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

int byte_level_byte(char32_t character) {
  return character < kAlphabet.bytes.size() ? kAlphabet.bytes[character] : -1;
}

void append_byte_level(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    const char32_t c = kAlphabet.characters[static_cast<unsigned char>(byte)];
    if (c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else {
      append_utf8(c, out);
    }
  }
}

}  // namespace bl
