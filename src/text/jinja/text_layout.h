#pragma once
// Text laid out over lines: textwrap.wrap and pprint.pformat.

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
// The lines of at most `width` characters that `line` becomes; none for a blank one.
std::vector<std::string> wrap_line(Runtime& rt, std::string_view line, const WrapStyle& style);

// repr() with keys sorted, over several lines where it is wider than 80 characters.
void append_pretty(Runtime& rt, const Value& value, std::string& out);

// {name: value} of a call's keywords.
Value keywords_as_dict(Runtime& rt, std::span<const Keyword> keywords);

}  // namespace bl::jinja
