#pragma once
#include <string_view>

#include "base/json_fwd.h"

namespace bl::openai {

// Returns the object that a JSON text begins: all of its members that are whole, at every depth. A
// text that was cut loses the value that it was cut in; a text that begins no object gives an empty
// one. Protocols that carry the arguments of calls as objects need it for calls that never ended.
Json begun_object(std::string_view text);

}  // namespace bl::openai
