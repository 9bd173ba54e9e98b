#include "sample/regex_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>

#include "sample/grammar_hooks.h"

namespace bl {

namespace {

// Calls visit(i) for every sign that is neither escaped nor in a class, until that says false.
template <class Visit>
bool all_signs(std::string_view regex, const Visit& visit) {
  bool in_class = false;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (!visit(i)) {
      return false;
    }
  }
  return true;
}

// Of the anchors, the first that stands in the middle; npos: none.
std::size_t misplaced_anchor(std::string_view regex) {
  std::size_t found = regex.npos;
  all_signs(regex, [&](std::size_t i) {
    const char c = regex[i];
    const char before = i > 0 ? regex[i - 1] : '|';
    const char after = i + 1 < regex.size() ? regex[i + 1] : '|';
    bool right = true;
    if (c == '$') right = after == '|' || after == ')';
    if (c == '^') {
      // (?:^ begins one, too.
      const bool after_group = before == ':' && i >= 3 && regex.substr(i - 3, 3) == "(?:";
      right = before == '|' || before == '(' || after_group;
    }
    if (!right) found = i;
    return right;
  });
  return found;
}

// The escapes \uXXXX and \u{X…}; others are shorter than what could be wrong with them, and what is
// malformed is the library's to refuse.
struct UnicodeEscape {
  std::size_t size = 0;  // of its signs; 0: not one of them
  std::uint32_t code = 0;
};

UnicodeEscape unicode_escape_at(const std::string& regex, std::size_t at) {
  if (regex.compare(at, 2, "\\u") != 0) return {};
  const bool braces = regex.compare(at + 2, 1, "{") == 0;
  const char* const begin = regex.data() + at + (braces ? 3 : 2);
  const char* const last = regex.data() + regex.size();
  const char* const most = begin + std::min<std::ptrdiff_t>(braces ? 8 : 4, last - begin);
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(begin, most, code, 16);
  if (error != std::errc()) return {};
  if (braces) {
    if (end == last || *end != '}') return {};
    return {static_cast<std::size_t>(end - regex.data()) - at + 1, code};
  }
  if (end - begin != 4) return {};
  return {6 + static_cast<std::size_t>(join_surrogates(end, code)), code};
}

}  // namespace

std::string regex_fault(std::string_view regex) {
  if (const std::size_t at = misplaced_anchor(regex); at != regex.npos) {
    return fmt::format(
        "has {} in its middle (at {}), where nothing can match: it is matched with all of a text",
        regex[at], at);
  }
  const std::string text(regex);  // ends by a zero
  for (std::size_t i = text.find('\\'); i != text.npos; i = text.find('\\', i)) {
    const UnicodeEscape escape = unicode_escape_at(text, i);
    if (escape.size > 0 && !is_character(escape.code)) {
      return fmt::format("has {} (at {}), which is no character of Unicode",
                         text.substr(i, escape.size), i);
    }
    i += std::max<std::size_t>(escape.size, 2);
  }
  return "";
}

std::string with_plain_dots(std::string_view regex) {
  std::string result;
  std::size_t copied = 0;
  all_signs(regex, [&](std::size_t i) {
    if (regex[i] != '.') return true;
    result += regex.substr(copied, i - copied);
    result += "[^\\n\\r]";
    copied = i + 1;
    return true;
  });
  result += regex.substr(copied);
  return result;
}

}  // namespace bl
