#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/kv_layout.h"

namespace bl {

// Bytes that a model will take on its device, known before anything is loaded.
struct MemoryPlan {
  std::size_t weights = 0;
  std::size_t cache = 0;
  std::size_t work = 0;      // scratch of a step
  std::size_t backend = 0;   // Backend::own_bytes
  std::size_t adapters = 0;  // kept free for adapters
  std::size_t loading = 0;   // Backend::loading_bytes: freed before cache and scratch are taken
  // The peak.
  std::size_t total() const {
    return weights + backend + std::max(loading, cache + work + adapters);
  }

  // Not in the total: room for the driver (Backend::driver_bytes), and host memory.
  std::size_t driver = 0;
  std::size_t on_host = 0;
  // What must be free on the device.
  std::size_t needed() const { return total() + driver; }
};

// Returns the bytes of cache for `sequences` sequences of `context` positions each.
std::size_t cache_bytes(std::span<const KvLayout> layers, std::int64_t context,
                        std::int64_t sequences);

}  // namespace bl
