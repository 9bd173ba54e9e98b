#include "serve_signals.h"

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/interrupt.h"

namespace bl {
namespace {

constexpr std::chrono::milliseconds kSignalCheck(100);

void pass_on(int) { std::raise(SIGTERM); }

}  // namespace

void install_server_signals() {
  struct sigaction action {};
  action.sa_handler = pass_on;
  sigaction(SIGHUP, &action, nullptr);
  for (const int ignored : {SIGUSR1, SIGUSR2, SIGPIPE}) std::signal(ignored, SIG_IGN);
}

void end_after_signal(std::chrono::seconds most) {
  std::thread([most] {
    while (!interrupted()) std::this_thread::sleep_for(kSignalCheck);
    std::this_thread::sleep_for(most);
    std::_Exit(0);
  }).detach();
}

}  // namespace bl
