#include "backend/cuda/fitting/slot_runs.h"

#include <algorithm>

namespace bl::cuda {

std::vector<GroupRuns> runs_of(std::span<const SlotGroup> groups) {
  std::vector<GroupRuns> result;
  std::int64_t slot = 0;
  for (const SlotGroup& group : groups) {
    GroupRuns& own = result.emplace_back(GroupRuns{slot, group.slots, group.bits, {}});
    for (std::int64_t at = 0; at < group.slots; at += kRunSlots) {
      const std::int64_t slots = std::min<std::int64_t>(kRunSlots, group.slots - at);
      own.runs.push_back({slot + at, static_cast<int>(slots)});
    }
    slot += group.slots;
  }
  return result;
}

std::int64_t most_slots(std::span<const SlotGroup> groups) {
  std::int64_t most = 0;
  for (const SlotGroup& group : groups) most = std::max<std::int64_t>(most, group.slots);
  return most;
}

std::size_t rounding_bytes(std::int64_t in, std::int64_t out, std::int64_t group, bool sweeps) {
  const auto weights = static_cast<std::size_t>(in * out);
  const auto columns = static_cast<std::size_t>(out);
  // Work, values and codes; scales of groups of 32 slots at most, each with a 16-bit scale and a
  // code; the steps of a run, and the curves of a group's columns.
  std::size_t bytes = weights * (2 * sizeof(float) + 1) + weights / 32 * 3 +
                      columns * (kRunSlots + 24) * sizeof(float);
  if (sweeps) {
    const auto piece = static_cast<std::size_t>(in * std::min(out, kErrorColumns));
    const auto of_group = static_cast<std::size_t>(group) * columns;
    bytes += std::max(piece, 3 * of_group) * sizeof(float);
  }
  return bytes;
}

}  // namespace bl::cuda
