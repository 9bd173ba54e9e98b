#include "sample/grammar_dialect.h"

#include "sample/regex_dialect.h"

namespace bl {
namespace {

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

// Returns the end of the piece that begins at `at`: a literal, a character class, a comment or else
// one character.
std::size_t end_of_piece(std::string_view grammar, std::size_t at) {
  const char first = grammar[at];
  if (first == '#') {
    const std::size_t end = grammar.find('\n', at);
    return end == grammar.npos ? grammar.size() : end;
  }
  if (first == '"') return behind_closing(grammar, at, '"');
  return first == '[' ? behind_closing(grammar, at, ']') : at + 1;
}

}  // namespace

std::string with_any_characters(std::string_view grammar) {
  constexpr std::string_view kAny = "[^\\u0000]";
  std::string result;
  for (std::size_t at = 0; at < grammar.size();) {
    const std::size_t end = end_of_piece(grammar, at);
    const bool of_name = (at > 0 && is_of_name(grammar[at - 1])) ||
                         (end < grammar.size() && is_of_name(grammar[end]));
    if (grammar[at] == '.' && !of_name) {
      result += kAny;
    } else {
      result += grammar.substr(at, end - at);
    }
    at = end;
  }
  return result;
}

}  // namespace bl
