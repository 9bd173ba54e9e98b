#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/piece_index.h"
#include "engine/token_text_index.h"
#include "sample/sampling_params.h"

namespace bl {

class Tokenizer;

// Sets of tokens that need a walk over the whole vocabulary: found when the first request needs
// them, and kept for the others. Thread-safe.
class TokenTables {
 public:
  // The tokenizer must outlive it; ids from `vocab` on are left out.
  TokenTables(const Tokenizer& tokenizer, std::int64_t vocab)
      : tokenizer_(tokenizer), vocab_(vocab) {}

  // Sets the lists of ids that parameters give as texts or by default: DRY's sequence breakers (and
  // special tokens), and the tokens that XTC spares. Lists that the request has given stay as they
  // are. Banned and allowed pieces are added to the ids given; throws kInvalidArgument for a piece
  // that is not exactly one token's text, and names it.
  void complete(SamplingParams& params);
  // The vocabulary by pieces, for token healing.
  const PieceIndex& pieces();

 private:
  using Ids = std::shared_ptr<const std::vector<std::int32_t>>;
  Ids breakers(const std::vector<std::string>& texts);
  std::vector<std::int32_t> in_vocabulary(std::vector<std::int32_t> ids) const;
  void add_pieces(const char* name, std::vector<std::string>& pieces,
                  std::vector<std::int32_t>& ids);

  const Tokenizer& tokenizer_;
  std::int64_t vocab_;
  std::mutex mutex_;
  std::vector<std::pair<std::vector<std::string>, Ids>> breakers_;  // the last used one last
  Ids spared_;
  std::optional<PieceIndex> pieces_;
  std::optional<TokenTextIndex> texts_;
};

}  // namespace bl
