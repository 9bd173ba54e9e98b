#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/merge_table.h"
#include "text/token_model.h"

namespace bl {

struct BpeOptions {
  std::optional<std::string> unknown_token;
  std::string continuing_prefix;   // precedes every symbol of a word except the first
  std::string end_of_word_suffix;  // follows the last symbol of a word
  bool fuse_unknown = false;       // adjacent unknown characters become one token
  bool byte_fallback = false;      // unknown characters become <0xHH> tokens
  bool ignore_merges = false;      // a piece that is a token is not taken apart
};

// Byte-pair encoding with ranked merges (Sennrich et al., "Neural machine translation of rare words
// with subword units", 2016), as tokenizer.json describes it.
class BpeModel final : public TokenModel {
 public:
  // `merges` are in order of rank. Throws kInvalidFile, with `where` as the name of the list,
  // unless both halves of every merge and its result are tokens.
  BpeModel(Vocabulary vocabulary,
           const std::vector<std::pair<std::string_view, std::string_view>>& merges,
           BpeOptions options, std::string_view where);

  std::unique_ptr<Session> start(std::size_t text_bytes) const override;

 private:
  class BpeSession;

  void add_merges(const std::vector<std::pair<std::string_view, std::string_view>>& merges,
                  std::string_view where);
  void learn_characters(const std::vector<bool>& is_merged);
  // The token of a single character, or -1.
  std::int32_t character_id(char32_t c) const {
    if (c < characters_.size()) return characters_[c];
    const auto it = rare_characters_.find(c);
    return it == rare_characters_.end() ? -1 : it->second;
  }
  static std::size_t pair_bit(char32_t a, char32_t b);
  // Returns false only if no merge ever joins text that ends in `a` with text that begins with `b`.
  bool may_join(char32_t a, char32_t b) const {
    const std::size_t bit = pair_bit(a, b);
    return (joins_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  BpeOptions options_;
  MergeTable merges_;
  ByteTokens bytes_;
  std::int32_t unknown_id_ = -1;
  bool plain_symbols_ = true;             // no prefix and no suffix: a symbol is its character
  std::vector<std::int32_t> characters_;  // the token of each of the lower code points
  std::unordered_map<char32_t, std::int32_t> rare_characters_;
  // The pairs of characters that stand side by side in the result of some merge, as a bit set
  // indexed by hash (so it has false positives). A long piece may be cut between any other pair
  // without changing its tokens.
  std::vector<std::uint64_t> joins_;
};

}  // namespace bl
