#include "ops/launch_choice.h"

#include <algorithm>

namespace bl {

std::int64_t best_switch(std::span<const WayTimes> times, std::int64_t most) {
  const auto loss = [&](std::int64_t from) {
    double sum = 0;
    for (const WayTimes& t : times) {
      sum += (t.tokens < from ? t.first : t.second) / std::min(t.first, t.second) - 1;
    }
    return sum;
  };
  std::int64_t best = most;
  double least = loss(most);
  for (const WayTimes& t : times) {
    if (const double of = loss(t.tokens); of < least) {
      least = of;
      best = t.tokens;
    }
  }
  return best;
}

}  // namespace bl
