#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "text/byte_trie.h"
#include "text/token_model.h"

namespace bl {

// The unigram language model (Kudo 2018): of all ways to cut a text into tokens the one of the
// highest sum of scores, by Viterbi over a trie. tokenizer.json and sentencepiece differ in detail.
class UnigramModel final : public TokenModel {
 public:
  static constexpr double kUnknownPenalty = 10;  // below the lowest score

  struct Options {
    std::vector<double> scores;  // by id, as far as ids reach
    std::vector<bool> in_text;   // by id: found in text; empty: all tokens are
    std::optional<int> unknown_id;
    double unknown_score = 0;
    bool byte_fallback = false;     // unknown characters become <0xHH> tokens
    bool single_precision = false;  // sums are kept as float, as sentencepiece does
    bool unknown_by_text = true;    // unknown text that is a token as a whole becomes that token
  };
  UnigramModel(Vocabulary vocabulary, Options options);

  std::unique_ptr<Session> start(std::size_t text_bytes) const override;

 private:
  class UnigramSession;

  Options options_;
  ByteTrie trie_;
  ByteTokens bytes_;
};

}  // namespace bl
