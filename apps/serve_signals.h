#pragma once
#include <chrono>

namespace bl {

// The signals of a server: SIGHUP ends it as SIGTERM does, SIGUSR1 and SIGUSR2 do nothing, and a
// reader of its output that goes away (SIGPIPE) is a failed write.
void install_server_signals();

// Whatever hangs, the process ends with status 0 at the latest `most` after a signal has asked it
// to.
void end_after_signal(std::chrono::seconds most);

}  // namespace bl
