#pragma once
#include "base/json_fwd.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// Strings are borrowed from `json`, which must outlive the value. Throws Error(kInvalidArgument)
// for text that is not UTF-8 and binary data, kLimit for what is nested too deeply.
Value from_json(Runtime& rt, const OrderedJson& json, int depth = 0);

}  // namespace bl::jinja
