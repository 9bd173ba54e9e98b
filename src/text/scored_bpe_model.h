#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "text/byte_trie.h"
#include "text/merge_table.h"
#include "text/token_model.h"

namespace bl {

// The byte-pair encoding of sentencepiece: two neighbours merge if together they are a piece, and
// the piece with the highest score goes first. User-defined pieces are found first and merge with
// nothing.
class ScoredBpeModel final : public TokenModel {
 public:
  struct Options {
    std::vector<float> scores;               // by id; all finite
    std::vector<bool> mergeable;             // by id: whether it is an ordinary piece
    std::vector<std::int32_t> user_defined;  // the ids of user-defined pieces
    std::int32_t unknown_id = -1;
    bool byte_fallback = false;
  };
  ScoredBpeModel(Vocabulary vocabulary, Options options);

  std::unique_ptr<Session> start(std::size_t text_bytes) const override;

 private:
  class ScoredBpeSession;

  void learn_merges();
  // Returns the symbol of a piece, or of a character that only longer pieces contain; else -1.
  std::int32_t symbol_of(std::string_view text) const;

  Options options_;
  MergeTable merges_;
  ByteTokens bytes_;
  ByteTrie user_defined_;
  // The symbols of characters: the id of an ordinary piece, or one from the end of the vocabulary
  // upwards for a character that only longer pieces contain.
  std::unordered_map<char32_t, std::int32_t> characters_;
  std::vector<char32_t> extra_characters_;
  bool marks_begin_words_ = true;  // every piece has marks of a space only at its beginning
};

}  // namespace bl
