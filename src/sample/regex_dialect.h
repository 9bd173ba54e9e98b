#pragma once
#include <string>
#include <string_view>

namespace bl {

// Where the grammar library reads a regular expression in another way than ECMAScript and Python.

// Whether `^` stands only where a regular expression or an alternative of it begins, and `$` where
// one ends. The grammar library matches all of a text and leaves anchors out, which is right there
// and nowhere else.
bool anchors_end_alternatives(std::string_view regex);

// The same expression with `.` written as all but line breaks, which the library takes for them,
// too.
std::string with_plain_dots(std::string_view regex);

}  // namespace bl
