#pragma once
// Which models have to go before another one fits. Plans are values, made before anything happens.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bl::server {

// Bytes of memory that a model takes, or that there are for all models.
struct ModelMemory {
  std::uint64_t device = 0;  // of the device that computes; the host's memory where that is the CPU
  std::uint64_t host = 0;    // of the host beside a device
};

// A loaded model.
struct Resident {
  ModelMemory memory{};
  bool stays = false;   // pinned
  bool in_use = false;  // requests run
  std::chrono::steady_clock::time_point last_used{};
};

struct RoomPlan {
  bool possible = true;              // false: it does not fit even where all go that may
  std::vector<std::size_t> leaving;  // residents that have to go first
};

// Plans room for a model that needs `needed`, within `budget`, of which a zero means no bound. Idle
// models go first, the least recently used one first, then those whose requests run. Pinned models
// stay.
RoomPlan plan_room(std::span<const Resident> residents, const ModelMemory& needed,
                   const ModelMemory& budget);

}  // namespace bl::server
