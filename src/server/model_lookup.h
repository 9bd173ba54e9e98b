#pragma once
#include <string>

#include "server/server_state.h"

namespace bl::server {

// The model that a name means, loaded or not. Throws HttpError 404.
ModelInfo info_named(const ServerState& state, const std::string& name);
// The chat template of that name in the folder of templates. Throws RequestError, which names the
// field of the body that asked for it.
NamedFolder::Item template_named(const ServerState& state, const std::string& name,
                                 const char* field);

}  // namespace bl::server
