#pragma once
#include <chrono>
#include <optional>

#include "base/json_fwd.h"

namespace bl::server {

// Reads Ollama's "keep_alive": seconds as a number, or a duration as text such as "5m", "1h30m" or
// "-1". Negative: the model stays. Nothing where the body does not have it. Throws RequestError.
std::optional<std::chrono::milliseconds> keep_alive_of(const OrderedJson& body);

}  // namespace bl::server
