#pragma once
// Models that look at one word at a time: WordPiece and WordLevel of tokenizer.json.

#include <memory>
#include <string>

#include "text/byte_trie.h"
#include "text/token_model.h"

namespace bl {

// Greedy longest match from the left (Schuster and Nakajima, "Japanese and Korean voice search",
// 2012). A word that cannot be covered, or that is longer than `max_characters`, becomes the
// unknown token as a whole.
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
  ByteTrie continuing_;  // tokens that have the prefix, stored without it
};

// Every word is one token, or the unknown token.
class WordLevelModel final : public TokenModel {
 public:
  WordLevelModel(Vocabulary vocabulary, const std::string& unknown_token);

  std::unique_ptr<Session> start(std::size_t text_bytes) const override;

 private:
  class WordLevelSession;

  std::int32_t unknown_id_;
};

}  // namespace bl
