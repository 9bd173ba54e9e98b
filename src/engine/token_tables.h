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

// What requests need to know of all tokens of a vocabulary, found when the first request asks and
// kept for the others. Thread-safe.
class TokenTables {
 public:
  // The tokenizer must outlive it; ids from `vocab` on are left out.
  TokenTables(const Tokenizer& tokenizer, std::int64_t vocab)
      : tokenizer_(tokenizer), vocab_(vocab) {}

  // The sets of ids that parameters stand for by texts or by default: DRY's sequence breakers (and
  // special tokens), what XTC spares. Sets that the request has given itself stay. Banned and
  // allowed pieces become ids beside those that are there; throws kInvalidArgument naming one that
  // is not exactly one token's text.
  void complete(SamplingParams& params);
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
  std::vector<std::pair<std::vector<std::string>, Ids>> breakers_;  // the newest last
  Ids spared_;
  std::optional<PieceIndex> pieces_;
  std::optional<TokenTextIndex> texts_;
};

}  // namespace bl
