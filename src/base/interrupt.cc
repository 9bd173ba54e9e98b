#include "base/interrupt.h"

#include <csignal>

#include "base/error.h"

namespace bl {
namespace {

volatile std::sig_atomic_t& requested() {
  static volatile std::sig_atomic_t flag = 0;
  return flag;
}

void on_signal(int signal) { requested() = signal; }

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  // SA_RESETHAND restores the default action after the first signal, so that a second one kills.
  // Without SA_RESTART a blocking read returns, and its caller sees the request.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // With SIGXFSZ ignored, a file that grows beyond its limit is a failed write, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
}

bool interrupted() { return requested() != 0; }

void check_interrupt() {
  if (interrupted()) fail(ErrorCode::kCancelled, "interrupted");
}

void clear_interrupt() {
  if (requested() == SIGINT) requested() = 0;
  install_interrupt_handler();
}

}  // namespace bl
