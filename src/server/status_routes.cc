// What the server says of itself.

#include "base/json.h"
#include "server/routes.h"

namespace bl::server {

void add_status_routes(Router& router, ServerState& state) {
  const auto health = [&state](const Call& call) {
    const bool ready = state.registry().ready();
    call.exchange->respond(ready ? json_response(200, {{"status", "ok"}})
                                 : json_response(503, {{"status", "no model is loaded"}}));
  };
  for (const char* pattern : {"/health", "/v1/health"}) {
    router.add({.method = "GET",
                .pattern = pattern,
                .access = Access::kOpen,
                .quick = true,
                .summary = "Whether requests are answered",
                .handle = health});
  }
}

}  // namespace bl::server
