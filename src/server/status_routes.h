#pragma once
#include <memory>

#include "server/health.h"
#include "server/request_record.h"
#include "server/router.h"
#include "server/server_state.h"

namespace bl::server {

// What the routes about the server itself look at. All of it outlives the router.
struct StatusSources {
  ServerState& state;
  const HealthMonitor& health;
  std::shared_ptr<const Books> books;
  bool metrics = true;  // GET /metrics answers
  bool slots = true;    // GET /slots answers
};
// /health, /props, /slots, /metrics, /openapi.json
void add_status_routes(Router& router, const StatusSources& from);

}  // namespace bl::server
