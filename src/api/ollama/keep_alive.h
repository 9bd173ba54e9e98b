#pragma once
#include <chrono>
#include <optional>

#include "base/json_fwd.h"

namespace bl::ollama {

// How long a model stays loaded after its last request.
struct KeepAlive {
  std::chrono::milliseconds time{};
  bool forever = false;
};

// Reads "keep_alive": seconds as a number, or a duration such as "5m", "1h30m" or "500ms". Negative
// ones mean for ever. Returns nothing where the request does not say. Throws RequestError.
std::optional<KeepAlive> read_keep_alive(const OrderedJson& body);

}  // namespace bl::ollama
