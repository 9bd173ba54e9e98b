#pragma once
// The names of JSON values, for headers that only pass them on: the full library (base/json.h)
// costs about two seconds in every file that includes it.

#include <nlohmann/json_fwd.hpp>

namespace bl {

using Json = nlohmann::json;
// Keeps the order of keys, for documents whose order is visible (chat template variables, files
// that people read). Look-up is linear, so do not use it for big objects.
using OrderedJson = nlohmann::ordered_json;

}  // namespace bl
