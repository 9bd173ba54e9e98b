#include "sample/token_sets.h"

#include <algorithm>

#include "text/tokenizer.h"

namespace bl {

std::vector<std::int32_t> tokens_containing(const Tokenizer& tokenizer,
                                            std::span<const std::string> texts, bool specials) {
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) {
      if (specials) ids.push_back(id);
      continue;
    }
    const std::string text = tokenizer.decode({&id, 1}, false);
    const bool holds = std::any_of(texts.begin(), texts.end(), [&](const std::string& part) {
      return text.find(part) != text.npos;
    });
    if (holds) ids.push_back(id);
  }
  return ids;
}

std::vector<std::int32_t> xtc_protected_tokens(const Tokenizer& tokenizer) {
  const std::string kLineBreak = "\n";
  return tokens_containing(tokenizer, {&kLineBreak, 1}, true);
}

}  // namespace bl
