#pragma once
#include "grammar/automaton.h"

namespace bl {

// Which characters may be written as an escape although they need none.
enum class StringEscapes {
  kAll,       // every character
  kNotAscii,  // characters beyond ASCII, as writers do that keep to ASCII; and \/
};

// The JSON strings, in bytes and with their quotes, whose text `texts` accepts. What must be
// escaped can be written in every way that JSON has (RFC 8259, section 7): short escapes, \uXXXX in
// upper or lower case, and surrogate pairs. `texts` is over code points.
Automaton json_strings(const Automaton& texts, StringEscapes escapes);

}  // namespace bl
