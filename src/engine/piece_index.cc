#include "engine/piece_index.h"

#include <algorithm>

#include "text/tokenizer.h"

namespace bl {
namespace {

bool is_byte_piece(std::string_view piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>';
}

}  // namespace

PieceIndex::PieceIndex(const Tokenizer& tokenizer, std::int64_t vocab) : tokenizer_(tokenizer) {
  const auto limit =
      static_cast<std::int32_t>(std::min<std::int64_t>(tokenizer.vocab_size(), vocab));
  is_listed_.resize(static_cast<std::size_t>(limit), false);
  for (std::int32_t id = 0; id < limit; ++id) {
    const std::string_view piece = tokenizer.id_to_token(id);
    if (piece.empty() || tokenizer.is_special(id) || is_byte_piece(piece)) continue;
    is_listed_[static_cast<std::size_t>(id)] = true;
    ids_.push_back(id);
  }
  std::stable_sort(ids_.begin(), ids_.end(), [&](std::int32_t a, std::int32_t b) {
    return tokenizer.id_to_token(a) < tokenizer.id_to_token(b);
  });
}

std::string_view PieceIndex::piece(std::int32_t id) const {
  const auto at = static_cast<std::size_t>(id);
  return at < is_listed_.size() && is_listed_[at] ? tokenizer_.id_to_token(id) : std::string_view();
}

std::span<const std::int32_t> PieceIndex::beginning_with(std::string_view text) const {
  const auto head = [&](std::int32_t id) {
    return tokenizer_.id_to_token(id).substr(0, text.size());
  };
  const auto begin =
      std::lower_bound(ids_.begin(), ids_.end(), text,
                       [&](std::int32_t id, std::string_view t) { return head(id) < t; });
  const auto end = std::upper_bound(
      begin, ids_.end(), text, [&](std::string_view t, std::int32_t id) { return t < head(id); });
  return {begin, end};
}

}  // namespace bl
