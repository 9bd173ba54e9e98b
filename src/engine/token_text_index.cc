#include "engine/token_text_index.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "text/token_bytes.h"
#include "text/tokenizer.h"

namespace bl {

TokenTextIndex::TokenTextIndex(const Tokenizer& tokenizer, std::int64_t vocab) {
  const TokenBytes bytes(tokenizer);
  const auto limit =
      static_cast<std::int32_t>(std::min<std::int64_t>(tokenizer.vocab_size(), vocab));
  for (std::int32_t id = 0; id < limit; ++id) {
    std::string text =
        tokenizer.is_special(id) ? std::string(tokenizer.id_to_token(id)) : bytes.of(id);
    if (!text.empty()) entries_.push_back({std::move(text), id});
  }
  std::ranges::sort(entries_, {},
                    [](const Entry& entry) { return std::tie(entry.text, entry.id); });
}

std::vector<std::int32_t> TokenTextIndex::find(std::string_view text) const {
  std::vector<std::int32_t> ids;
  auto at = std::ranges::lower_bound(entries_, text, {}, &Entry::text);
  for (; at != entries_.end() && at->text == text; ++at) ids.push_back(at->id);
  return ids;
}

}  // namespace bl
