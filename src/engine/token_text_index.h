#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

class Tokenizer;

// The tokens of a vocabulary by the text that they add (TokenBytes): " yes", not "Ġyes" or "▁yes".
// Special tokens are found by their names.
class TokenTextIndex {
 public:
  // Walks over the whole vocabulary, so make one per model. Ids from `vocab` on are left out.
  TokenTextIndex(const Tokenizer& tokenizer, std::int64_t vocab);

  // The tokens whose text is exactly this, ascending: usually one, but two tokens may be the same
  // byte.
  std::vector<std::int32_t> find(std::string_view text) const;

 private:
  struct Entry {
    std::string text;
    std::int32_t id = 0;
  };
  std::vector<Entry> entries_;  // by text, then by id
};

}  // namespace bl
