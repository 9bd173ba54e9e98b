#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "text/byte_trie.h"
#include "text/merge_table.h"
#include "text/token_model.h"

namespace bl {

// Byte-pair encoding of sentencepiece: two neighbours merge if together they are a piece, the piece
// of the highest score first. User-defined pieces are found first and merge with nothing.
class ScoredBpeModel final : public TokenModel {
 public:
  struct Options {
    std::vector<float> scores;               // by id, finite
    std::vector<bool> mergeable;             // by id: an ordinary piece
    std::vector<std::int32_t> user_defined;  // ids
    std::int32_t unknown_id = -1;
    bool byte_fallback = false;
  };
  ScoredBpeModel(Vocabulary vocabulary, Options options);

  std::unique_ptr<Session> start(std::size_t text_bytes) const override;

 private:
  class ScoredBpeSession;

  void learn_merges();
  // The symbol of a piece, or of a character that is part of pieces but none itself; -1 for others.
  std::int32_t symbol_of(std::string_view text) const;

  Options options_;
  MergeTable merges_;
  ByteTokens bytes_;
  ByteTrie user_defined_;
  // Ordinary pieces of one character, and ids from the end of the vocabulary on for characters that
  // only longer pieces contain.
  std::unordered_map<char32_t, std::int32_t> characters_;
  std::vector<char32_t> extra_characters_;
  bool marks_begin_words_ = true;  // in every piece the mark of a space comes before anything else
};

}  // namespace bl
