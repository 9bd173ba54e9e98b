#pragma once
#include <string>
#include <string_view>

namespace bl {

// Says what is wrong with a regular expression that a whole text must match, as a phrase that
// follows "the regular expression", or returns an empty string. Offsets are bytes from 0. See
// parse_pattern() for the syntax. `^` may stand only where the expression or an alternative begins,
// and `$` only where one ends. `regex` must be valid UTF-8.
std::string regex_fault(std::string_view regex);

// Returns a grammar, in the library's EBNF, of the texts that the expression matches as a whole.
// regex_fault() must have nothing to say about it.
std::string regex_grammar(std::string_view regex);

}  // namespace bl
