#include "sample/regex_dialect.h"

#include <cstddef>

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

}  // namespace

bool anchors_end_alternatives(std::string_view regex) {
  return all_signs(regex, [regex](std::size_t i) {
    const char c = regex[i];
    const char before = i > 0 ? regex[i - 1] : '|';
    const char after = i + 1 < regex.size() ? regex[i + 1] : '|';
    if (c == '$') return after == '|' || after == ')';
    if (c != '^') return true;
    // (?:^ begins one, too.
    const bool after_group = before == ':' && i >= 3 && regex.substr(i - 3, 3) == "(?:";
    return before == '|' || before == '(' || after_group;
  });
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
