#pragma once
#include <cstdint>
#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// A set of kinds of JSON values, one bit each. Whole numbers are `integer`; all others are
// `number`.
using JsonKinds = std::uint32_t;
inline constexpr JsonKinds kAllKinds = 0x7f;

// The kinds that a `type` allows: a name or a list of names (JSON Schema validation 2020-12,
// section 6.1.1). Unknown names allow nothing.
JsonKinds kinds_of_type(const OrderedJson& type);

// The kinds of values that the grammar library accepts for a schema within `root`. It reads only
// the first of `$ref`, `const`, `enum`, `anyOf`, `oneOf` and `allOf`, else `type`. Returns all
// kinds if the answer is unknown.
JsonKinds kinds_of_schema(const OrderedJson& root, const OrderedJson& schema);

// Returns what a reference (#/…) points to, or null. Like the library, it does not decode escapes.
const OrderedJson* place_of_reference(const OrderedJson& root, std::string_view reference);

// True if the bounds of a schema exclude every number of up to six decimals, which is as many as
// the library writes, or, for an integer, every whole number.
bool leaves_no_number(const OrderedJson& schema);

}  // namespace bl
