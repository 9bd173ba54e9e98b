#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/json_fwd.h"

namespace bl::openai {

// These return a member of an object in the body of a request, which must have a certain type.
// `path` is the member's path in the body, as "messages[2].role"; its key follows the last dot.
// They return null where the member is missing or null, and throw RequestError, which names the
// path, where it has another type.
const std::string* given_text(const OrderedJson& object, const std::string& path);
const OrderedJson* given_list(const OrderedJson& object, const std::string& path);
const OrderedJson* given_object(const OrderedJson& object, const std::string& path);
std::optional<std::int64_t> given_whole(const OrderedJson& object, const std::string& path);

// As given_text(), but a missing member is an error, too.
const std::string& needed_text(const OrderedJson& object, const std::string& path);
// Throws RequestError unless the value is an object.
void expect_object(const OrderedJson& value, const std::string& path);

}  // namespace bl::openai
