#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cache/page_memory.h"

namespace bl {

// A bounded amount of host memory for pages that leave the cache's own. Slots of one page each; who
// is in which slot is PrefixIndex's business, which one goes first PrefixCache's.
//
// The memory is taken from the system as it fills. Where the system has no more, the tier stays as
// large as it is by then.
class HostTier {
 public:
  // At most `bytes`. Throws kInvalidArgument when they hold fewer than two pages: one slot is
  // always left free to exchange a page with.
  HostTier(PageMemory& memory, std::size_t bytes);

  std::int32_t slots() const { return slots_; }
  std::int32_t free_slots() const { return slots_ - used_; }
  std::size_t page_bytes() const { return page_bytes_; }

  // Moves the page's bytes to a free slot. Nothing when there is none. What the move throws leaves
  // the slot free.
  std::optional<std::int32_t> store(std::int32_t page);
  // Moves a slot's bytes into a page.
  void fetch(std::int32_t page, std::int32_t slot);
  void release(std::int32_t slot);

  // Bytes a second, from moves that were waited for now and then; 0 before the first.
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
  std::vector<std::int32_t> free_;  // of the slabs there are
  std::int64_t moves_ = 0;
  double copy_rate_ = 0;
};

}  // namespace bl
