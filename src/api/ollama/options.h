#pragma once
#include "base/json_fwd.h"

namespace bl::ollama {

// Writes what every request for an answer may have into a body of OpenAI's form: model, stream,
// options, format and think.
void read_options(const OrderedJson& body, OrderedJson& to);

}  // namespace bl::ollama
