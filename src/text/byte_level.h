#pragma once
#include <array>
#include <string>
#include <string_view>

namespace bl {

// The alphabet of byte-level vocabularies, in which every byte is written as one printable
// character: itself if it is a printable Latin-1 character, else one from U+0100 upwards. This is
// the alphabet of OpenAI's `bytes_to_unicode`.
// Returns the byte that a character stands for, or -1.
int byte_level_byte(char32_t character);

// Appends the character of every byte of `bytes` to `out`.
void append_byte_level(std::string_view bytes, std::string& out);

// The pattern by which byte-level vocabularies cut a text into words if their file gives none.
inline constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace bl
