#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace bl {

// A choice between two kernels for the same result: steps of at least `from` tokens use the second.
// `from` may be from `least` to `most` − 1, or `most`, which means never. `least` = `most` says
// that this card or build has only one of them.
struct LaunchChoice {
  std::string name;
  std::int64_t from = 0;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

// Measured times of a step of `tokens` tokens with each kernel, in seconds.
struct WayTimes {
  std::int64_t tokens = 0;
  double first = 0;
  double second = 0;
};
// Returns the number of tokens from which on the second kernel should be used, or `most` for never,
// so that the measured steps lose least. The loss of a step is how much slower it is, relative to
// its faster kernel. `times` must be sorted by tokens.
std::int64_t best_switch(std::span<const WayTimes> times, std::int64_t most);

}  // namespace bl
