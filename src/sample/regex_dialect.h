#pragma once
#include <string>
#include <string_view>

namespace bl {

// Differences between how the grammar library reads regular expressions and how ECMAScript and
// Python do.

// Returns the expression with `.` written as "anything but line breaks"; the library would match
// these too.
std::string with_plain_dots(std::string_view regex);

// Returns an expression that, matched against a whole text, accepts the texts of which `regex`
// matches a part. Anchors inside alternatives or groups are ignored, so with these it accepts more.
std::string with_text_around(std::string_view regex);

}  // namespace bl
