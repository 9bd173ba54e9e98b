#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

class Tokenizer;

// The tokens of a vocabulary by what they add to a text (TokenBytes): " yes", not "Ġyes" or "▁yes".
// Special tokens are found by their names.
class TokenTextIndex {
 public:
  // Walks over the whole vocabulary: do it once a model. Ids from `vocab` on are left out.
  TokenTextIndex(const Tokenizer& tokenizer, std::int64_t vocab);

  // Those that say exactly this, ascending; usually one, but a byte may be a token twice.
  std::vector<std::int32_t> find(std::string_view text) const;

 private:
  struct Entry {
    std::string text;
    std::int32_t id = 0;
  };
  std::vector<Entry> entries_;  // by text, then by id
};

}  // namespace bl
