#pragma once
#include <string>
#include <string_view>

#include "toolcall/tool_set.h"

namespace bl {

// The JSON of a value that a model wrote without quotes, whose type only the tool's schema knows.
// `text` becomes a number, boolean, null, object or array where the schema allows that type and the
// text is written so (in JSON, or as Python writes it); everything else is a string. Digits of
// numbers are kept as they are.
std::string bare_value_json(std::string_view text, TypeSet types);

// `text` itself, without white space around it, if it is one JSON value, else the text as a string.
std::string json_or_string(std::string_view text);

// Whether `text` is one JSON value with nothing but white space around it.
bool is_whole_json(std::string_view text);

}  // namespace bl
