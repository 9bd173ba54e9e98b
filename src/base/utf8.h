#pragma once
// Conversion between code points and UTF-8.

#include <cstddef>
#include <string>
#include <string_view>

namespace bl {

struct CodePoint {
  char32_t value = 0;
  unsigned size = 0;  // bytes that it takes in UTF-8, 1 to 4
};

// The code point that begins at `text[offset]`. `text` must be valid UTF-8, `offset` the first byte
// of a character.
inline CodePoint code_point_at(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[offset + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (lead < 0xf0) {
    return {(lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f),
          4};
}

// The code point that ends at `text[end - 1]`; end > 0.
CodePoint code_point_before(std::string_view text, std::size_t end);

// The number of bytes of the character whose first byte is `lead`, in valid UTF-8.
inline unsigned utf8_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Whether a byte of valid UTF-8 is other than the first of its character.
inline bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u;
}

void append_utf8(char32_t value, std::string& out);
// Appends the UTF-8 of a code point, which must be a Unicode scalar value.

// `text` must be valid UTF-8.
std::size_t count_code_points(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Which bytes one U+FFFD replaces: a maximal subpart of an ill-formed sequence (Unicode 15, section
// 3.9, "U+FFFD substitution of maximal subparts"), or every single byte.
enum class Replacement { kMaximalPart, kByte };

// Appends `bytes` to `out` with U+FFFD in place of what is not UTF-8. Unless `final`, an incomplete
// character at the end is left alone, since more bytes may complete it. Returns the number of bytes
// consumed.
std::size_t decode_lossy(std::string_view bytes, bool final, std::string& out,
                         Replacement replacement = Replacement::kMaximalPart);

// The bytes with U+FFFD in place of every maximal subpart that is not UTF-8.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace bl
