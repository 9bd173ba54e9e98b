#include "sample/regex_anchors.h"

#include <cstddef>

namespace bl {

bool anchors_end_alternatives(std::string_view regex) {
  bool in_class = false;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    const char before = i > 0 ? regex[i - 1] : '|';
    const char after = i + 1 < regex.size() ? regex[i + 1] : '|';
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '^') {
      // (?:^ begins one, too.
      const bool after_group = before == ':' && i >= 3 && regex.substr(i - 3, 3) == "(?:";
      if (before != '|' && before != '(' && !after_group) return false;
    } else if (c == '$' && after != '|' && after != ')') {
      return false;
    }
  }
  return true;
}

}  // namespace bl
