#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "ops/backend.h"

namespace bl::cuda {

// The only place where this backend allocates device memory, so that the memory in use can be
// compared with the plan.
class DeviceMemory {
 public:
  // `card` names the card in error messages.
  explicit DeviceMemory(std::string card) : card_(std::move(card)) {}

  // Returns memory aligned to 256 bytes, or null for 0 bytes. Throws kOutOfMemory.
  std::shared_ptr<std::byte> take(std::size_t bytes);
  MemoryUse use() const { return {counts_->now, counts_->peak}; }

 private:
  struct Counts {
    std::atomic<std::size_t> now = 0;
    std::atomic<std::size_t> peak = 0;
  };
  std::string card_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

}  // namespace bl::cuda
