#include "text/vocabulary.h"

#include "base/check.h"
#include "text/byte_hash.h"

namespace bl {
namespace {

std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

}  // namespace

void Vocabulary::reserve(std::size_t tokens) {
  entries_.reserve(tokens);
  by_id_.reserve(tokens);
  bytes_.reserve(tokens * 8);
  std::size_t slots = 16;
  while (slots < tokens * 2) slots *= 2;
  if (slots > slots_.size()) grow(slots);
}

void Vocabulary::grow(std::size_t slots) {
  slots_.assign(slots, Slot{});
  const std::size_t mask = slots - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::uint64_t hash = hash_bytes(text(entries_[i]));
    std::size_t slot = hash & mask;
    while (slots_[slot].entry != 0) slot = (slot + 1) & mask;
    slots_[slot] = {tag_of(hash), static_cast<std::uint32_t>(i + 1)};
  }
}

std::size_t Vocabulary::slot_of(std::string_view token) const {
  const std::uint64_t hash = hash_bytes(token);
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  while (slots_[slot].entry != 0) {
    if (slots_[slot].tag == tag_of(hash) && text(entries_[slots_[slot].entry - 1]) == token) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Vocabulary::add(std::string_view token, int id) {
  BL_CHECK(id >= 0 && id <= kMaxId);
  if (slots_.size() < (entries_.size() + 1) * 2) grow(slots_.empty() ? 16 : slots_.size() * 2);
  const std::size_t slot = slot_of(token);
  std::int32_t index = 0;
  if (slots_[slot].entry != 0) {
    index = static_cast<std::int32_t>(slots_[slot].entry - 1);
    entries_[static_cast<std::size_t>(index)].id = id;
  } else {
    index = static_cast<std::int32_t>(entries_.size());
    entries_.push_back({bytes_.size(), static_cast<std::uint32_t>(token.size()), id});
    bytes_.append(token);
    slots_[slot] = {tag_of(hash_bytes(token)), static_cast<std::uint32_t>(index + 1)};
  }
  if (static_cast<std::size_t>(id) >= by_id_.size())
    by_id_.resize(static_cast<std::size_t>(id) + 1, -1);
  by_id_[static_cast<std::size_t>(id)] = index;
}

int Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return -1;
  const Slot slot = slots_[slot_of(token)];
  return slot.entry == 0 ? -1 : entries_[slot.entry - 1].id;
}

std::string_view Vocabulary::token(int id) const {
  if (id < 0 || id >= id_limit()) return {};
  const std::int32_t index = by_id_[static_cast<std::size_t>(id)];
  if (index < 0) return {};
  return text(entries_[static_cast<std::size_t>(index)]);
}

}  // namespace bl
