#pragma once
#include <string_view>

#include "grammar/automaton.h"

namespace bl {

// The texts in which a regular expression matches somewhere, as `pattern` in JSON Schema means it
// (JSON Schema validation 2020-12, section 6.3.3). See parse_pattern() for the syntax. Looking
// ahead is supported where a pattern begins with `^` and then looks ahead. Throws kInvalidArgument
// with a phrase that follows "the pattern", and kLimit if the expression needs too many states.
Automaton search_of_pattern(std::string_view regex);

}  // namespace bl
