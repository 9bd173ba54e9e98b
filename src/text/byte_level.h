#pragma once
#include <array>
#include <string>
#include <string_view>

namespace bl {

// The alphabet of byte-level vocabularies: every byte is written as one printable character, itself
// where it is a printable Latin-1 character, else U+0100 and up.
char32_t byte_level_character(unsigned char byte);
// The byte that a character stands for, or -1.
int byte_level_byte(char32_t character);

// Writes every byte of `bytes` as its character.
void append_byte_level(std::string_view bytes, std::string& out);

// How such vocabularies cut a text into words where their file gives no pattern of its own.
inline constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace bl
