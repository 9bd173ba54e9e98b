#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace bl {

// Differences between how the grammar library reads regular expressions and how ECMAScript and
// Python do.

// Says what is wrong with an expression, as a phrase that follows "the regular expression", or
// returns an empty string. Positions are byte offsets from 0. `^` may stand only where the
// expression or an alternative begins, and `$` only where one ends: the library always matches the
// whole text and drops anchors, which is right in those places only. Escapes must be characters; of
// a surrogate pair (`\ud83d\ude00`), both halves must be there.
std::string regex_fault(std::string_view regex);

// Returns the expression with `.` written as "anything but line breaks"; the library would match
// these too.
std::string with_plain_dots(std::string_view regex);

// Returns the offset after the next `closing` that follows `at` without a backslash before it, or
// the end of the text if there is none.
std::size_t behind_closing(std::string_view text, std::size_t at, char closing);

// Returns an expression that, matched against a whole text, accepts the texts of which `regex`
// matches a part. Anchors inside alternatives or groups are ignored, so with these it accepts more.
std::string with_text_around(std::string_view regex);

}  // namespace bl
