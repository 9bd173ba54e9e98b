#include "sample/regex_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace bl {
namespace {

// Returns the offset after the next `closing` that follows `at` without a backslash before it, or
// the end of the text if there is none.
std::size_t behind_closing(std::string_view text, std::size_t at, char closing) {
  for (++at; at < text.size() && text[at] != closing; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// Returns the offset after the element at `at`: a character class, an escape or a single
// character.
std::size_t end_of_sign(std::string_view regex, std::size_t at) {
  if (regex[at] == '\\') return std::min(at + 2, regex.size());
  return regex[at] == '[' ? behind_closing(regex, at, ']') : at + 1;
}

// Whether the expression has alternatives outside of all groups.
bool has_alternatives(std::string_view regex) {
  int depth = 0;
  for (std::size_t at = 0; at < regex.size(); at = end_of_sign(regex, at)) {
    if (regex[at] == '(') ++depth;
    if (regex[at] == ')') --depth;
    if (regex[at] == '|' && depth == 0) return true;
  }
  return false;
}

}  // namespace

std::string with_plain_dots(std::string_view regex) {
  std::string result;
  for (std::size_t at = 0; at < regex.size();) {
    const std::size_t end = end_of_sign(regex, at);
    result += regex[at] == '.' ? "[^\\n\\r]" : regex.substr(at, end - at);
    at = end;
  }
  return result;
}

std::string with_text_around(std::string_view regex) {
  const bool is_one = !has_alternatives(regex);
  const bool at_begin = is_one && regex.starts_with('^');
  if (at_begin) regex.remove_prefix(1);
  const bool at_end = is_one && regex.ends_with('$') && !regex.ends_with("\\$");
  if (at_end) regex.remove_suffix(1);
  std::string all = at_begin ? "" : "[\\s\\S]*";
  if (!regex.empty()) all += fmt::format("(?:{})", regex);
  return all + (at_end ? "" : "[\\s\\S]*");
}

}  // namespace bl
