#pragma once
// SIGINT and SIGTERM: the first asks the running operation to stop cleanly, the second ends the
// process at once.

namespace bl {

// Starts listening. Called once by the program's main; without it signals keep their defaults.
void install_interrupt_handler();

// Whether a stop was asked for.
bool interrupted();

// Throws Error(kCancelled) when it was. For loops that leave nothing half-written.
void check_interrupt();

// Forgets a SIGINT and listens again: an interactive program stops the answer, not itself. A
// SIGTERM is not forgotten: interrupted() stays true.
void clear_interrupt();

}  // namespace bl
