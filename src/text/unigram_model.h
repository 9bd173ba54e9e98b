#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "text/byte_trie.h"
#include "text/token_model.h"

namespace bl {

// The unigram language model (Kudo, "Subword regularization", 2018): of all ways to cut a text into
// tokens it takes the one with the highest sum of scores, by Viterbi's algorithm over a trie. The
// options cover the differences between tokenizer.json and sentencepiece.
class UnigramModel final : public TokenModel {
 public:
  static constexpr double kUnknownPenalty = 10;  // distance below the lowest score

  struct Options {
    std::vector<double> scores;  // by id; as many as there are ids
    std::vector<bool> in_text;   // by id: whether it is found in text; empty means that all are
    std::optional<int> unknown_id;
    double unknown_score = 0;
    bool byte_fallback = false;     // unknown characters become <0xHH> tokens
    bool single_precision = false;  // sums are kept as float, as in sentencepiece
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
