#include "backend/cuda/fitting/row_memory.h"

#include <map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace bl::cuda {

struct RowMemory::Kept {
  std::size_t room = 0;                                                 // of the card
  std::size_t used = 0;                                                 // of the card
  std::size_t host_bytes = 0;                                           // allocated
  std::map<std::size_t, std::vector<std::shared_ptr<std::byte>>> free;  // of the host, by size
};

RowMemory::RowMemory(Source card, Source host)
    : card_(std::move(card)), host_(std::move(host)), kept_(std::make_shared<Kept>()) {}

void RowMemory::set_room(std::size_t bytes) { kept_->room = bytes; }

std::size_t RowMemory::host_bytes() const { return kept_->host_bytes; }

Buffer RowMemory::take_on_card(std::size_t bytes) {
  if (kept_->used + bytes > kept_->room) return {};
  std::shared_ptr<std::byte> memory = card_(bytes);
  if (memory == nullptr) return {};
  kept_->used += bytes;
  std::byte* data = memory.get();
  const auto give_back = [kept = kept_, memory = std::move(memory), bytes](void*) mutable {
    memory.reset();
    kept->used -= bytes;
  };
  return {std::shared_ptr<void>(data, give_back), data, bytes};
}

Buffer RowMemory::take(std::size_t bytes) {
  if (bytes == 0) return {};
  Buffer on_card = take_on_card(bytes);
  if (on_card.data() != nullptr) return on_card;
  std::vector<std::shared_ptr<std::byte>>& same_size = kept_->free[bytes];
  std::shared_ptr<std::byte> memory;
  if (!same_size.empty()) {
    memory = std::move(same_size.back());
    same_size.pop_back();
  } else {
    memory = host_(bytes);
    if (memory == nullptr) {
      fail(ErrorCode::kOutOfMemory,
           "{} bytes of host memory for calibration rows could not be allocated; give fewer or "
           "shorter rows",
           bytes);
    }
    kept_->host_bytes += bytes;
  }
  std::byte* data = memory.get();
  const auto give_back = [kept = kept_, memory = std::move(memory), bytes](void*) mutable {
    kept->free[bytes].push_back(std::move(memory));
  };
  return {std::shared_ptr<void>(data, give_back), data, bytes};
}

}  // namespace bl::cuda
