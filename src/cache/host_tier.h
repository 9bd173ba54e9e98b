#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cache/page_memory.h"

namespace bl {

// A bounded amount of host memory for pages that are evicted from the cache's own memory, divided
// into slots of one page each. PrefixIndex knows which page is in which slot; PrefixCache chooses
// what is evicted.
//
// Memory is allocated as the tier fills. If the system has no more, the tier stays at its current
// size.
class HostTier {
 public:
  // Uses at most `bytes`. Throws kInvalidArgument if they hold fewer than two pages: one slot
  // always stays free, so that a page can be exchanged.
  HostTier(PageMemory& memory, std::size_t bytes);

  std::int32_t slots() const { return slots_; }
  std::int32_t free_slots() const { return slots_ - used_; }
  std::size_t page_bytes() const { return page_bytes_; }

  // Copies the page to a free slot and returns the slot, or nothing if none is free. If the copy
  // throws, the slot stays free.
  std::optional<std::int32_t> store(std::int32_t page);
  // Copies a slot into a page. The slot stays taken.
  void fetch(std::int32_t page, std::int32_t slot);
  void release(std::int32_t slot);

  // Measured bytes per second of a move; 0 before the first measurement.
  double copy_rate() const { return copy_rate_; }

 private:
  std::byte* at(std::int32_t slot) const;
  bool grow();
  template <class Move>
  void timed(Move&& move);

  PageMemory& memory_;
  std::size_t page_bytes_;
  std::int32_t slots_;
  std::int32_t slots_of_slab_;
  std::int32_t used_ = 0;
  std::vector<Buffer> slabs_;
  std::vector<std::int32_t> free_;  // free slots of the slabs allocated so far
  std::int64_t moves_ = 0;
  double copy_rate_ = 0;
};

}  // namespace bl
