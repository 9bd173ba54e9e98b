#pragma once
// Clients of streamed completions that cost little beside the server: one thread, poll(), no
// parsing but for what is counted.

#include <cstdint>
#include <span>
#include <string>

namespace bl {

struct StreamLoad {
  std::uint16_t port = 0;    // of a server on this machine
  std::int64_t clients = 0;  // streams at once
  std::int64_t tokens = 0;   // that each answer must have
};

struct StreamRound {
  double seconds = 0;
  double cpu_seconds = 0;  // of this process
  std::int64_t tokens = 0;
  std::int64_t events = 0;
  std::int64_t bytes = 0;
};

// Sends the bodies to /v1/completions, each on a connection of its own, and receives the streams.
// Throws Error where an answer ends early or has another number of tokens.
StreamRound run_streams(const StreamLoad& load, std::span<const std::string> bodies);

}  // namespace bl
