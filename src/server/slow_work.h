#pragma once
#include <functional>

#include "server/router.h"
#include "server/server_state.h"

namespace bl::server {

// Runs `work` on the queue for what takes long, and answers with the error that it throws, in the
// shape of the route.
void run_slowly(ServerState& state, const Call& call, ErrorShape shape, std::function<void()> work);

}  // namespace bl::server
