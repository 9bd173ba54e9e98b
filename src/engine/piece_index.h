#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

class Tokenizer;

// The tokens of a vocabulary sorted by their pieces ("Ġthe", "▁the"), so that all that begin with a
// text are found at once. Special tokens and those for single bytes ("<0xE2>") are left out.
class PieceIndex {
 public:
  // The tokenizer must outlive it; ids from `vocab` on are left out.
  PieceIndex(const Tokenizer& tokenizer, std::int64_t vocab);

  // The token's piece; empty where it is left out.
  std::string_view piece(std::int32_t id) const;
  // The tokens whose pieces begin with `text`, the one that equals it first.
  std::span<const std::int32_t> beginning_with(std::string_view text) const;

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;  // sorted by their pieces
  std::vector<bool> is_listed_;
};

}  // namespace bl
