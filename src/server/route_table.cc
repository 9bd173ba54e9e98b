#include "server/route_table.h"

namespace bl::server {

void add_routes(Router& router, ServerState& state, std::span<const StateRoute> routes) {
  for (const StateRoute& route : routes) {
    router.add(
        {.method = route.method,
         .pattern = route.pattern,
         .access = route.access,
         .shape = route.shape,
         .summary = route.summary,
         .handle = [&state, handle = route.handle](const Call& call) { handle(state, call); }});
  }
}

}  // namespace bl::server
