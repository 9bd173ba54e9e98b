#pragma once
#include <span>

#include "server/router.h"
#include "server/server_state.h"

namespace bl::server {

// A route whose handler needs nothing but the state.
struct StateRoute {
  const char* method;
  const char* pattern;
  Access access;
  const char* summary;
  void (*handle)(ServerState& state, const Call& call);
  ErrorShape shape = ErrorShape::kOpenAi;
};

// `state` outlives the router.
void add_routes(Router& router, ServerState& state, std::span<const StateRoute> routes);

}  // namespace bl::server
