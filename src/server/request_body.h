#pragma once
#include <string>

#include "base/json.h"
#include "server/router.h"

namespace bl::server {

// Members of a body whose type decides how a request goes on. All throw openai::RequestError where
// a member has another type.

// A text; empty where it is not given.
std::string text_in(const OrderedJson& body, const char* key);
// A text that has to be given and not empty.
std::string needed_text(const OrderedJson& body, const char* key);
// A number; `otherwise` where it is not given.
double number_in(const OrderedJson& body, const char* key, double otherwise);
std::int64_t count_in(const OrderedJson& body, const char* key, std::int64_t otherwise);

// The body of a request; an empty object where nothing was sent.
OrderedJson optional_body(const Call& call);

}  // namespace bl::server
