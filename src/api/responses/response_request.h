#pragma once
#include "base/json_fwd.h"

namespace bl::responses {

// Translates the body of a request to /v1/responses into the body of a chat of OpenAI's form. Tools
// that OpenAI's servers would run are left out. Throws RequestError, which names the field of
// `body`; what would need a memory of earlier answers is kUnsupported.
OrderedJson chat_body(const OrderedJson& body);

// The members of a response that repeat what the request asked for.
Json echoed_fields(const OrderedJson& body);

}  // namespace bl::responses
