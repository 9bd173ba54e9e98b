#pragma once
#include "base/json_fwd.h"

namespace bl::anthropic {

// Translates the body of a request to /v1/messages or /v1/messages/count_tokens into the body of a
// chat of OpenAI's form. Unknown fields are left out; fields that mean the same are copied
// (shared_fields.h). Tools that Anthropic's servers would run are left out, too. Throws
// RequestError, which names the field of `body`.
OrderedJson chat_body(const OrderedJson& body);

}  // namespace bl::anthropic
