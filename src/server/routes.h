#pragma once
#include "server/router.h"
#include "server/server_state.h"

namespace bl::server {

// Each adds the routes of one API. `state` outlives the router.
void add_openai_routes(Router& router, ServerState& state);  // /v1/chat/completions, …
void add_model_routes(Router& router, ServerState& state);   // /v1/models
void add_status_routes(Router& router, ServerState& state);  // /health

}  // namespace bl::server
