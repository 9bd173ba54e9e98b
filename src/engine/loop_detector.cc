#include "engine/loop_detector.h"

#include <vector>

namespace bl {

bool is_loop(std::span<const std::int32_t> ids, std::int64_t repeats) {
  if (ids.empty()) return false;
  // For each prefix, the longest proper prefix of it that is also its suffix (as in Knuth, Morris
  // and Pratt); the rest of it is its period.
  std::vector<std::size_t> border(ids.size(), 0);
  for (std::size_t i = 1; i < ids.size(); ++i) {
    std::size_t length = border[i - 1];
    while (length > 0 && ids[i] != ids[length]) length = border[length - 1];
    border[i] = length + (ids[i] == ids[length] ? 1 : 0);
  }
  const auto period = static_cast<std::int64_t>(ids.size() - border.back());
  return period * repeats <= static_cast<std::int64_t>(ids.size());
}

}  // namespace bl
