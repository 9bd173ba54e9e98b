#pragma once
// Models that look at one word at a time: WordPiece and WordLevel of tokenizer.json.

#include <memory>
#include <string>

#include "text/byte_trie.h"
#include "text/token_model.h"

namespace bl {

// Greedy longest match from the left (Schuster & Nakajima 2012); a word that cannot be covered, or
// is longer than `max_characters`, becomes the unknown token as a whole.
class WordPieceModel final : public TokenModel {
 public:
  struct Options {
    std::string unknown_token = "[UNK]";
    std::string continuing_prefix = "##";
    std::size_t max_characters = 100;
  };
  WordPieceModel(Vocabulary vocabulary, Options options);

  std::unique_ptr<Session> start(std::size_t text_bytes) const override;

 private:
  class WordPieceSession;

  Options options_;
  std::int32_t unknown_id_;
  ByteTrie first_;       // tokens as they stand
  ByteTrie continuing_;  // tokens with the prefix, without it
};

// A word is a token or unknown.
class WordLevelModel final : public TokenModel {
 public:
  WordLevelModel(Vocabulary vocabulary, const std::string& unknown_token);

  std::unique_ptr<Session> start(std::size_t text_bytes) const override;

 private:
  class WordLevelSession;

  std::int32_t unknown_id_;
};

}  // namespace bl
