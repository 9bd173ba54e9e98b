#pragma once
#include <string>

#include "server/server_state.h"

namespace bl::server {

// The model that a name means, loaded or not. Throws HttpError 404.
ModelInfo info_named(const ServerState& state, const std::string& name);

}  // namespace bl::server
