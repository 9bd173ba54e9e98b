#include "cache/host_tier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace bl {
namespace {

// Memory is asked for in pieces of this size: page-locking it costs time.
constexpr std::size_t kSlabBytes = std::size_t{256} << 20;
// One move in so many is waited for and timed.
constexpr std::int64_t kTimedMoves = 32;

}  // namespace

HostTier::HostTier(PageMemory& memory, std::size_t bytes)
    : memory_(memory), page_bytes_(memory.page_bytes()) {
  BL_CHECK(page_bytes_ > 0);
  if (bytes / page_bytes_ < 2) {
    fail(ErrorCode::kInvalidArgument,
         "--kv-host of {} bytes holds fewer than two pages; a page of this model's cache has {}",
         bytes, page_bytes_);
  }
  slots_ = static_cast<std::int32_t>(std::min<std::size_t>(bytes / page_bytes_, INT32_MAX));
  slots_of_slab_ = static_cast<std::int32_t>(
      std::clamp<std::size_t>(kSlabBytes / page_bytes_, 1, static_cast<std::size_t>(slots_)));
}

std::byte* HostTier::at(std::int32_t slot) const {
  BL_CHECK(slot >= 0 && slot < slots_);
  const auto slab = static_cast<std::size_t>(slot / slots_of_slab_);
  return static_cast<std::byte*>(slabs_[slab].data()) +
         static_cast<std::size_t>(slot % slots_of_slab_) * page_bytes_;
}

// A slab more; false where none is to be had.
bool HostTier::grow() {
  const auto first = static_cast<std::int32_t>(slabs_.size()) * slots_of_slab_;
  const std::int32_t count = std::min(slots_of_slab_, slots_ - first);
  if (count <= 0) return false;
  Buffer slab = memory_.allocate_host(static_cast<std::size_t>(count) * page_bytes_);
  if (slab.data() == nullptr) {
    log_warning("the system has no more memory for the cache's host tier: {} of {} pages", first,
                slots_);
    slots_ = first;
    return false;
  }
  free_.reserve(static_cast<std::size_t>(first + count));  // so that release() needs no memory
  slabs_.push_back(std::move(slab));
  for (std::int32_t slot = first + count; slot > first; --slot) free_.push_back(slot - 1);
  return true;
}

// A move that is waited for, before and after, once in a while: what is otherwise measured is how
// fast moves are asked for. The very first is the best of three, since it touches new memory; later
// ones are made once, because a request is waiting, and one that was held up counts for little.
template <class Move>
void HostTier::timed(Move&& move) {
  if (moves_++ % kTimedMoves != 0) {
    move();
    return;
  }
  double best = 1e9;
  const int times = copy_rate_ == 0 ? 3 : 1;
  for (int i = 0; i < times; ++i) {
    memory_.finish_moves();
    const auto begin = std::chrono::steady_clock::now();
    move();
    memory_.finish_moves();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::min(best, seconds.count());
  }
  const double rate = static_cast<double>(page_bytes_) / std::max(best, 1e-9);
  const double weight = copy_rate_ == 0 ? 1.0 : (rate > copy_rate_ ? 0.5 : 0.125);
  copy_rate_ += weight * (rate - copy_rate_);
}

std::optional<std::int32_t> HostTier::store(std::int32_t page) {
  if (free_.empty() && !grow()) return std::nullopt;
  const std::int32_t slot = free_.back();
  timed([&] { memory_.write_page(at(slot), page); });
  free_.pop_back();
  ++used_;
  return slot;
}

void HostTier::fetch(std::int32_t page, std::int32_t slot) {
  timed([&] { memory_.read_page(page, at(slot)); });
}

void HostTier::release(std::int32_t slot) {
  BL_CHECK(slot >= 0 && slot < slots_ && used_ > 0);
  --used_;
  free_.push_back(slot);
}

}  // namespace bl
