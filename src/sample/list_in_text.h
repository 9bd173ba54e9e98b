#pragma once
#include <optional>
#include <string_view>

#include "base/json_fwd.h"

namespace bl {

// Returns the list that a text holds as JSON. Clients of text-generation-webui and TabbyAPI send
// lists this way, with their brackets ("[\"\\n\", \":\"]") or without them ("\"\\n\", \":\""). An
// object in a text ("{\"5\": 1}") is returned as it is. Returns nothing for any other text.
std::optional<Json> list_in_text(std::string_view text);

}  // namespace bl
