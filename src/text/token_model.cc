#include "text/token_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "text/byte_hash.h"

namespace bl {
namespace {

constexpr std::size_t kTextWorthCaching = 2048;
constexpr std::size_t kSlots = 16384;  // 1 MiB

}  // namespace

WordCache::WordCache(std::size_t text_bytes) {
  if (text_bytes >= kTextWorthCaching) slots_.resize(kSlots);
}

std::span<const std::int32_t> WordCache::find(std::string_view word) const {
  if (slots_.empty() || word.size() > sizeof(Slot::word)) return {};
  const Slot& slot = slots_[hash_bytes(word) % kSlots];
  if (slot.word_size != word.size() ||
      std::memcmp(slot.word.data(), word.data(), word.size()) != 0) {
    return {};
  }
  return std::span(slot.ids).first(slot.ids_size);
}

void WordCache::store(std::string_view word, std::span<const std::int32_t> ids) {
  if (slots_.empty() || word.size() > sizeof(Slot::word) || ids.size() > std::size(Slot{}.ids)) {
    return;
  }
  Slot& slot = slots_[hash_bytes(word) % kSlots];
  slot.word_size = static_cast<std::uint8_t>(word.size());
  slot.ids_size = static_cast<std::uint8_t>(ids.size());
  std::copy(word.begin(), word.end(), slot.word.begin());
  std::copy(ids.begin(), ids.end(), slot.ids.begin());
}

ByteTokens::ByteTokens(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    ids_[static_cast<std::size_t>(byte)] = vocabulary.find(fmt::format("<0x{:02X}>", byte));
  }
}

bool ByteTokens::append(std::string_view text, std::vector<std::int32_t>& out) const {
  const std::size_t size = out.size();
  for (const char byte : text) {
    const std::int32_t id = ids_[static_cast<unsigned char>(byte)];
    if (id < 0) {
      out.resize(size);
      return false;
    }
    out.push_back(id);
  }
  return true;
}

}  // namespace bl
