#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace bl {

// From `from` tokens of a step on, a backend takes one of two ways to the same result instead of
// the other. Either can be taken from `least` to `most` − 1; `from` = `most`: never the second.
// `least` = `most`: this card or build has one way only.
struct LaunchChoice {
  std::string name;
  std::int64_t from = 0;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

// A step of so many tokens, both ways, in seconds.
struct WayTimes {
  std::int64_t tokens = 0;
  double first = 0;
  double second = 0;
};
// From how many tokens on the second way is to be taken, so that the steps measured lose least,
// each counted by how much slower it is than its faster way. `times` by rising tokens; `most`:
// never.
std::int64_t best_switch(std::span<const WayTimes> times, std::int64_t most);

}  // namespace bl
