#pragma once
#include <string_view>

#include "base/json_fwd.h"

namespace bl::openai {

// Whether a field of a body means the same in every protocol of chats: sampling parameters under
// the names of sampling_json.h, adapters and template variables. Those that ask for several answers
// or for log-probabilities are none: other protocols have no place for these.
bool is_shared_field(std::string_view name);

// Copies these fields to the body of a chat of OpenAI's form.
void copy_shared_fields(const OrderedJson& from, OrderedJson& chat);

}  // namespace bl::openai
