#pragma once
// Text as Python's str sees it: code points, its white space, its case mappings.
// `text` is valid UTF-8 everywhere.

#include <cstddef>
#include <string>
#include <string_view>

namespace bl::jinja {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// str.isspace of one character.
bool is_python_space(char32_t c);
// `\w` of Python's re.
bool is_python_word(char32_t c);
bool is_python_alpha(char32_t c);
bool is_python_decimal(char32_t c);
// str.isdigit / str.isnumeric of one character.
bool is_python_digit(char32_t c);
bool is_python_numeric(char32_t c);
// What repr shows as it is.
bool is_python_printable(char32_t c);
bool is_upper_case(char32_t c);
bool is_title_case(char32_t c);
bool is_lower_case(char32_t c);
bool is_cased(char32_t c);
// Value of a decimal digit of any script, -1 for others.
int decimal_value(char32_t c);

// Full case mappings (ß becomes SS).
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string to_swapped_case(std::string_view text);
std::string to_folded_case(std::string_view text);

enum class StripSide { kBoth, kLeft, kRight };
// Without white space, or without the characters of `chars`.
std::string_view python_strip(std::string_view text, StripSide side);
std::string_view python_strip(std::string_view text, std::string_view chars, StripSide side);

bool is_ascii(std::string_view text);
// Byte offset of code point `index`; text.size() when there are fewer.
std::size_t offset_of(std::string_view text, std::size_t index);
// Code points [begin, end).
std::string_view code_points(std::string_view text, std::size_t begin, std::size_t end);

// First and last occurrence at or after / wholly before a place, in linear time; npos if none.
std::size_t find_text(std::string_view text, std::string_view what, std::size_t from = 0);
std::size_t find_last_text(std::string_view text, std::string_view what);

// str.splitlines: the length of the line end at `offset` (0 if there is none there).
std::size_t line_end_size(std::string_view text, std::size_t offset);

}  // namespace bl::jinja
