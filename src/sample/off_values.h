#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// Returns the value with which a number of SamplingParams is off, if `value` stands for that in the
// requests of other programs: `false` for any number that can be off, and for some fields numbers
// that are out of range here. Returns nothing for values that mean themselves.
std::optional<std::int64_t> off_value_of(std::string_view field, const Json& value);

// Whether other programs write this value for a list or a text that is left out: false, or an empty
// text, list or object.
bool is_nothing(const Json& value);

}  // namespace bl
