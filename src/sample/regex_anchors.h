#pragma once
#include <string_view>

namespace bl {

// Whether `^` stands only where a regular expression or an alternative of it begins, and `$` where
// one ends. The grammar library matches all of a text and leaves anchors out, which is right there
// and nowhere else.
bool anchors_end_alternatives(std::string_view regex);

}  // namespace bl
