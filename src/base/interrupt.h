#pragma once
// Handling of SIGINT and SIGTERM: the first signal asks the running operation to stop cleanly, the
// second ends the process at once.

namespace bl {

// Installs the handlers. The program's main calls it once; without it signals keep their default
// actions.
void install_interrupt_handler();

// Whether one of the signals has arrived.
bool interrupted();

// Throws Error(kCancelled) if interrupted(). For loops that leave nothing half-written.
void check_interrupt();

// Forgets a SIGINT and listens again: in an interactive program Ctrl-C stops the answer, not the
// program. A SIGTERM is not forgotten: interrupted() stays true.
void clear_interrupt();

}  // namespace bl
