#include "text/merge_table.h"

#include <bit>

namespace bl {

void MergeTable::reserve(std::size_t merges) {
  const std::size_t slots = std::bit_ceil(merges * 2 + 16);
  if (slots > slots_.size()) grow(slots);
}

void MergeTable::grow(std::size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  mask_ = slots - 1;
  shift_ = 64u - static_cast<unsigned>(std::countr_zero(slots));
  for (const Slot& slot : old) {
    if (slot.key == kFree) continue;
    std::size_t i = home(slot.key);
    while (slots_[i].key != kFree) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

void MergeTable::add(std::int32_t left, std::int32_t right, Merge merge) {
  if ((count_ + 1) * 2 > slots_.size()) grow(slots_.empty() ? 16 : slots_.size() * 2);
  const std::uint64_t key = key_of(left, right);
  std::size_t i = home(key);
  while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask_;
  count_ += slots_[i].key == kFree;
  slots_[i] = {key, merge};
}

}  // namespace bl
