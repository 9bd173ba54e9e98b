#pragma once
#include <chrono>

namespace bl {

// The signals of a server: SIGHUP ends it as SIGTERM does, SIGUSR1 and SIGUSR2 do nothing, and a
// reader of its output that goes away (SIGPIPE) is a failed write.
void install_server_signals();

// From now on the process ends with status 0 after `most` at the latest, whatever hangs.
void end_within(std::chrono::seconds most);

}  // namespace bl
