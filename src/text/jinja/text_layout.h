#pragma once
// Text that is laid out over lines, as by textwrap.wrap and pprint.pformat.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

struct WrapStyle {
  std::int64_t width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};
// Returns the lines, of at most `width` characters, that `line` becomes; none for a blank line.
std::vector<std::string> wrap_line(Runtime& rt, std::string_view line, const WrapStyle& style);

// repr() with sorted keys, over several lines if it is wider than 80 characters.
void append_pretty(Runtime& rt, const Value& value, std::string& out);

// Returns the keywords of a call as a dict.
Value keywords_as_dict(Runtime& rt, std::span<const Keyword> keywords);

}  // namespace bl::jinja
