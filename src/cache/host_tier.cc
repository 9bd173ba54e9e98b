#include "cache/host_tier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace bl {
namespace {

// Memory is allocated in slabs of this size, because page-locking takes time.
constexpr std::size_t kSlabBytes = std::size_t{256} << 20;
// One in this many moves is timed.
constexpr std::int64_t kTimedMoves = 32;

}  // namespace

HostTier::HostTier(PageMemory& memory, std::size_t bytes)
    : memory_(memory), page_bytes_(memory.page_bytes()) {
  BL_CHECK(page_bytes_ > 0);
  if (bytes / page_bytes_ < 2) {
    fail(ErrorCode::kInvalidArgument,
         "--kv-host: {} bytes hold fewer than two pages of this model's cache, which have {} bytes "
         "each",
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

// Allocates one more slab. Returns false if the tier is full or the system has no more memory.
bool HostTier::grow() {
  const auto first = static_cast<std::int32_t>(slabs_.size()) * slots_of_slab_;
  const std::int32_t count = std::min(slots_of_slab_, slots_ - first);
  if (count <= 0) return false;
  Buffer slab = memory_.allocate_host(static_cast<std::size_t>(count) * page_bytes_);
  if (slab.data() == nullptr) {
    log_warning("the system has no more memory for --kv-host; it holds {} of {} pages", first,
                slots_);
    slots_ = first;
    return false;
  }
  free_.reserve(static_cast<std::size_t>(first + count));  // so that release() never allocates
  slabs_.push_back(std::move(slab));
  for (std::int32_t slot = first + count; slot > first; --slot) free_.push_back(slot - 1);
  return true;
}

// Makes a move, and once in a while times it, waiting for all moves before and after, because moves
// are asynchronous. The very first is timed three times and the best counts, since it touches new
// memory. Later ones are made once, because a request is waiting, and a slow one has little weight.
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
