#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "ops/backend.h"

namespace bl::cuda {

// A card's memory as this backend takes it: all of it is taken here, so that what was planned can
// be compared with what was taken.
class DeviceMemory {
 public:
  // `card` names it in errors.
  explicit DeviceMemory(std::string card) : card_(std::move(card)) {}

  // 256-byte aligned. Throws kOutOfMemory.
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
