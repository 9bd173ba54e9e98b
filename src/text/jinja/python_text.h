#pragma once
// Text as Python's str sees it: code points, white space and case mappings. `text` must be valid
// UTF-8 in all functions.

#include <cstddef>
#include <string>
#include <string_view>

namespace bl::jinja {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }  // ASCII only

// str.isspace for one character.
bool is_python_space(char32_t c);
// `\w` in Python's re.
bool is_python_word(char32_t c);
bool is_python_alpha(char32_t c);
bool is_python_decimal(char32_t c);
// str.isdigit and str.isnumeric for one character.
bool is_python_digit(char32_t c);
bool is_python_numeric(char32_t c);
// Whether repr shows the character unchanged.
bool is_python_printable(char32_t c);
bool is_upper_case(char32_t c);
bool is_title_case(char32_t c);
bool is_lower_case(char32_t c);
bool is_cased(char32_t c);
// The value of a decimal digit of any script; -1 for other characters.
int decimal_value(char32_t c);

// Full case mappings, in which ß becomes SS.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string to_swapped_case(std::string_view text);
std::string to_folded_case(std::string_view text);

enum class StripSide { kBoth, kLeft, kRight };
// Removes white space, or the characters of `chars`, from the ends.
std::string_view python_strip(std::string_view text, StripSide side);
std::string_view python_strip(std::string_view text, std::string_view chars, StripSide side);

bool is_ascii(std::string_view text);
// The byte offset of code point `index`; text.size() if there are fewer code points.
std::size_t offset_of(std::string_view text, std::size_t index);
// Code points [begin, end) of the text.
std::string_view code_points(std::string_view text, std::size_t begin, std::size_t end);

// The byte offset of the first occurrence at or after `from`, and of the last occurrence; npos if
// there is none. Both take linear time.
std::size_t find_text(std::string_view text, std::string_view what, std::size_t from = 0);
std::size_t find_last_text(std::string_view text, std::string_view what);

// The length of the line end at `offset`, as str.splitlines knows them; 0 if there is none there.
std::size_t line_end_size(std::string_view text, std::size_t offset);

}  // namespace bl::jinja
