#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/draft_source.h"

namespace bl {

// Where in a text its last tokens stood before: chains of places with the same hash of their last
// `least` tokens, newest first, as in the matchers of LZ77. A text grows and is cut at its end.
// Constant time a token and a look-up; 16 bytes a token at most.
class NgramIndex {
 public:
  explicit NgramIndex(std::int64_t least) : least_(least) {}

  struct Match {
    std::int64_t place = -1;  // of the token that followed; −1: none
    std::int64_t length = 0;  // tokens that agree, as far as was looked
  };
  // Takes what is new about the text, of which the first `same` tokens are as before, and finds the
  // longest match of its end, the newest of equally long ones.
  Match find(std::span<const std::int32_t> text, std::int64_t same);
  // Where the end of `text` stands in `known`, the whole of what find() has last been given.
  Match look_up(std::span<const std::int32_t> known, std::span<const std::int32_t> text) const;

 private:
  void extend(std::span<const std::int32_t> text);
  void cut(std::int64_t tokens);
  void grow();
  // Takes the places with the hash of the end of `text` that are longer matches than `best`.
  void search(std::span<const std::int32_t> known, std::span<const std::int32_t> text,
              Match& best) const;

  std::int64_t least_;
  std::vector<std::int32_t> older_;    // of each place: the one before it in its chain, or −1
  std::vector<std::uint32_t> hashes_;  // of each place
  std::vector<std::int32_t> newest_;   // of each hash: its newest place, or −1
  std::int64_t expected_ = -1;         // where the last match goes on, if its guess was right
};

// Guesses that a text goes on as it did before, or as one that is known does: free, and often right
// where an answer repeats its prompt (editing, summaries with quotes, code), itself, or what is
// known.
class NgramDraft : public DraftSource {
 public:
  // `least`: tokens that must agree, 1 or more. `known`: a text that answers are expected to quote;
  // it is looked at where the answer's own has no match that is longer.
  explicit NgramDraft(std::int64_t least = 2, std::string known = {})
      : least_(least), known_text_(std::move(known)), known_index_(least) {}

  // Encodes what is known: kInvalidArgument where there is no tokenizer for it.
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
