#pragma once
#include <cstdint>

#include "base/json.h"

namespace bl {

// The whole number that a value is. Throws Json::exception for any other value, such as 1e300,
// whose conversion by get() is undefined.
inline std::int64_t whole_number(const Json& value) { return value.get_ref<const std::int64_t&>(); }

}  // namespace bl
