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
  std::string continuing_prefix;   // before every symbol of a word but its first
  std::string end_of_word_suffix;  // behind the last symbol of a word
  bool fuse_unknown = false;       // unknown characters beside each other become one token
  bool byte_fallback = false;      // unknown characters become <0xHH> tokens
  bool ignore_merges = false;      // a piece that is a token as a whole stays one
};

// Byte-pair encoding with ranked merges (Sennrich et al. 2016), as tokenizer.json describes it.
class BpeModel final : public TokenModel {
 public:
  // `merges` in order of their rank. `where` names them in errors: both halves of a merge and what
  // they make must be tokens, else kInvalidFile.
  BpeModel(Vocabulary vocabulary,
           const std::vector<std::pair<std::string_view, std::string_view>>& merges,
           BpeOptions options, std::string_view where);

  std::unique_ptr<Session> start(std::size_t text_bytes) const override;

 private:
  class BpeSession;

  void add_merges(const std::vector<std::pair<std::string_view, std::string_view>>& merges,
                  std::string_view where);
  void learn_characters(const std::vector<bool>& is_merged);
  // The token of one character, -1 where there is none.
  std::int32_t character_id(char32_t c) const {
    if (c < characters_.size()) return characters_[c];
    const auto it = rare_characters_.find(c);
    return it == rare_characters_.end() ? -1 : it->second;
  }
  static std::size_t pair_bit(char32_t a, char32_t b);
  // False: no merge ever joins what ends in `a` with what begins with `b`.
  bool may_join(char32_t a, char32_t b) const {
    const std::size_t bit = pair_bit(a, b);
    return (joins_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  BpeOptions options_;
  MergeTable merges_;
  ByteTokens bytes_;
  std::int32_t unknown_id_ = -1;
  bool plain_symbols_ = true;             // neither prefix nor suffix: a symbol is its character
  std::vector<std::int32_t> characters_;  // by code point, the lower ones
  std::unordered_map<char32_t, std::int32_t> rare_characters_;
  // A bit set (by hash, so with false positives) of the pairs of neighbouring characters inside
  // tokens that merges make. Between other pairs a long piece can be cut without changing anything.
  std::vector<std::uint64_t> joins_;
};

}  // namespace bl
