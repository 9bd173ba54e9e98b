#pragma once
#include <cstdint>
#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// Kinds of JSON values, a bit each. Whole numbers are `integer`, all others `number`.
using JsonKinds = std::uint32_t;
inline constexpr JsonKinds kAllKinds = 0x7f;

// Of what `type` says, a name or a list of names (JSON Schema validation 2020-12, §6.1.1); names
// that nobody knows stand for nothing.
JsonKinds kinds_of_type(const OrderedJson& type);

// Of the values that the grammar library lets through by a schema of `root`: of `$ref`, `const`,
// `enum`, `anyOf`, `oneOf` and `allOf` it reads the first alone, else `type`. All, where it is not
// known.
JsonKinds kinds_of_schema(const OrderedJson& root, const OrderedJson& schema);

// Where a reference (#/…) leads, of which the library knows no escapes; null where that is nowhere.
const OrderedJson* place_of_reference(const OrderedJson& root, std::string_view reference);

// True where the bounds of a schema leave no number of six decimals, the most the library writes,
// or where it is to be whole no whole one.
bool leaves_no_number(const OrderedJson& schema);

}  // namespace bl
