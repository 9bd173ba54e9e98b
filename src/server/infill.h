#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bl {
class Tokenizer;
}

namespace bl::server {

// The tokens by which a model of code is asked to fill a gap. Models write them in one of a few
// ways, which are tried in turn.
struct InfillTokens {
  std::int32_t prefix = 0;
  std::int32_t suffix = 0;
  std::int32_t middle = -1;  // −1: the model has none, and begins behind the last of the two
  bool suffix_first = false;
  std::optional<std::int32_t> repository{};  // before the name of a repository
  std::optional<std::int32_t> file{};        // before the name of a further file
};
// Nothing where the vocabulary has no such tokens.
std::optional<InfillTokens> find_infill_tokens(const Tokenizer& tokenizer);

struct InfillParts {
  std::string prefix;
  std::string suffix;
  std::string begun;                                         // the beginning of the gap's text
  std::vector<std::pair<std::string, std::string>> files{};  // further files: (name, text)
};
// The prompt whose continuation fills the gap. `most`: tokens that it may have; the files that do
// not fit, the beginning of the prefix and the end of the suffix are left out.
std::vector<std::int32_t> infill_prompt(const Tokenizer& tokenizer, const InfillTokens& tokens,
                                        const InfillParts& parts, std::size_t most);

}  // namespace bl::server
