#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/draft_source.h"

namespace bl {

// Finds where the last tokens of a text occurred in it before: chains of positions with equal
// hashes of the `least` tokens before them, newest first, as in the matchers of LZ77. A text grows
// and is cut at its end. Takes constant time per token and look-up, and at most 16 bytes per token.
class NgramIndex {
 public:
  explicit NgramIndex(std::int64_t least) : least_(least) {}

  struct Match {
    std::int64_t place = -1;  // the index of the token that followed; −1: no match
    std::int64_t length = 0;  // tokens that agree, as far as they were compared
  };
  // Updates the index to `text`, whose first `same` tokens have not changed, and returns the
  // longest match for its end; of equally long ones, the newest.
  Match find(std::span<const std::int32_t> text, std::int64_t same);
  // Returns the longest match for the end of `text` in `known`, the text last given to find().
  Match look_up(std::span<const std::int32_t> known, std::span<const std::int32_t> text) const;

 private:
  void extend(std::span<const std::int32_t> text);
  void cut(std::int64_t tokens);
  void grow();
  // Looks for a longer match than `best` among the positions with the hash of the end of `text`.
  void search(std::span<const std::int32_t> known, std::span<const std::int32_t> text,
              Match& best) const;

  std::int64_t least_;
  std::vector<std::int32_t> older_;    // by position: the one before it in its chain, or −1
  std::vector<std::uint32_t> hashes_;  // by position
  std::vector<std::int32_t> newest_;   // by hash: its newest position, or −1
  std::int64_t expected_ = -1;         // where the last match goes on, if its guess was right
};

// Guesses that a text goes on as it did before, or as in a given text. That costs next to nothing,
// and is often right where an answer repeats its prompt (editing, summaries with quotes, code),
// itself, or the given text.
class NgramDraft : public DraftSource {
 public:
  // `least`: tokens that must agree, 1 or more. `known`: a text that answers are expected to quote.
  // It is used where it has a longer match than the answer's own text.
  explicit NgramDraft(std::int64_t least = 2, std::string known = {})
      : least_(least), known_text_(std::move(known)), known_index_(least) {}

  // Encodes the known text. Throws kInvalidArgument where there is one but no tokenizer.
  void check_target(const Tokenizer* tokenizer, std::int64_t vocab) override;
  bool is_free() const override { return true; }
  void propose(std::span<DraftJob> jobs) override;

 private:
  std::int64_t least_;
  std::string known_text_;
  std::vector<std::int32_t> known_;
  NgramIndex known_index_;
};

}  // namespace bl
