#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace bl {

// Where the grammar library reads a regular expression in another way than ECMAScript and Python.

// What is wrong with it, to stand behind "the regular expression"; empty where nothing is. Places
// are bytes from 0. `^` may stand only where the expression or an alternative of it begins, and `$`
// where one ends: the grammar library matches all of a text and leaves anchors out, which is right
// there and nowhere else. Escapes must be characters: of surrogates (`\ud83d\ude00`) both halves.
std::string regex_fault(std::string_view regex);

// The same expression with `.` written as all but line breaks, which the library takes for them,
// too.
std::string with_plain_dots(std::string_view regex);

// Behind what the sign at `at` opens and the next `closing` ends, which is none behind a backslash;
// the end of the text where nothing does.
std::size_t behind_closing(std::string_view text, std::size_t at, char closing);

// An expression for all texts of which the given one matches a part, to be matched with all of a
// text. Anchors of alternatives or within groups are not looked at: then it is for more than these.
std::string with_text_around(std::string_view regex);

}  // namespace bl
