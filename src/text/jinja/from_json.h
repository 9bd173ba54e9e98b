#pragma once
#include "base/json_fwd.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// Converts JSON to a value. Strings are borrowed from `json`, which must outlive the value. Throws
// Error: kInvalidArgument for binary data and text that is not UTF-8, kLimit for too deep a
// nesting.
Value from_json(Runtime& rt, const OrderedJson& json, int depth = 0);

}  // namespace bl::jinja
