#include "server/slow_work.h"

#include <utility>

#include "engine/caught_error.h"

namespace bl::server {

void run_slowly(ServerState& state, const Call& call, ErrorShape shape,
                std::function<void()> work) {
  const auto to = call.exchange;
  const bool posted = state.slow().try_post([to, shape, work = std::move(work)] {
    try {
      work();
    } catch (const Error& error) {
      to->respond(error_response(shape, error));
    } catch (const std::exception&) {
      to->respond(error_response(shape, caught_error()));
    }
  });
  if (posted) return;
  throw HttpError(503, "overloaded", "too many requests are waiting; try again later");
}

}  // namespace bl::server
