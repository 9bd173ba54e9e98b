#pragma once
#include <string_view>

#include "grammar/automaton.h"

namespace bl {

// Whether `format` is one whose texts are bounded. JSON Schema lets all others be mere remarks.
bool is_known_format(std::string_view format);

// The texts of a known format: dates and times after RFC 3339, addresses, host names, URIs after
// RFC 3986, UUIDs and JSON pointers. Where writers disagree, these are the texts that all
// validators take.
Automaton texts_of_format(std::string_view format);

}  // namespace bl
