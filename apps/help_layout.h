#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace bl {

// The columns that help may take: the width of the terminal that shows it, 100 where there is none.
std::size_t help_width();

// The number of columns that valid UTF-8 takes, if every character takes one.
std::size_t columns_of(std::string_view text);

// Where the lines of a wrapped text begin and end, in columns.
struct TextBlock {
  std::size_t first = 0;   // columns of the first line that are taken already
  std::size_t indent = 0;  // of the lines after it
  std::size_t width = 0;   // no line is longer, unless one word is
  // Whether to break only outside of parentheses and square brackets, as in "[-n N] (-p X | -f Y)".
  bool keep_brackets = false;
};

// Breaks a text at spaces. The result has no line break at its end.
std::string wrapped(std::string_view text, const TextBlock& block);

}  // namespace bl
