#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace bl {
class Tokenizer;
}

namespace bl::openai {

// Writes formats of structural tags (ConstraintSpec::kStructuralTag) for texts in which special
// tokens may stand. Such a token is matched by its id, and nowhere else: the text of values cannot
// hold it.
class TagFormat {
 public:
  // The tokenizer must outlive it. `end_tokens`: those that end an answer.
  TagFormat(const Tokenizer& tokenizer, std::span<const std::int32_t> end_tokens);

  // Exactly this text. A text with an end token ends before it, since the answer does.
  // `{index}` and `{number}` in it are any digits, `{id}` nine letters and digits.
  OrderedJson literal(std::string_view text) const;
  // Whether the text has an end token in it, so that nothing can follow.
  bool ends_answer(std::string_view text) const;
  // The special token with which a text begins; -1: none.
  std::int32_t first_token(std::string_view text) const;
  // The special tokens that these texts have, except for end tokens.
  std::vector<std::int32_t> special_in(const std::vector<std::string>& texts) const;
  // Any text up to and with the first of `ends` that comes. All or none of them begin with a
  // special token; if they do, the text may have the special tokens `inside` that begin no end.
  OrderedJson until(const std::vector<std::string>& ends,
                    const std::vector<std::int32_t>& inside = {}) const;

  // Any tokens but those that are `excluded`. Special tokens are only those of `rules` (pairs of a
  // token and what follows it) and those `inside`.
  static OrderedJson tokens(OrderedJson rules, const std::vector<std::int32_t>& inside,
                            const std::vector<std::int32_t>& excluded);

  static OrderedJson sequence(std::vector<OrderedJson> elements);
  static OrderedJson any_of(std::vector<OrderedJson> elements);
  static OrderedJson optional(OrderedJson content);
  static OrderedJson star(OrderedJson content);
  static OrderedJson regex(std::string pattern);
  static OrderedJson schema(OrderedJson schema);

 private:
  struct Piece {
    std::string text;
    std::int32_t token = -1;  // -1: the text is plain
  };
  // The text cut at its special tokens, up to the first end token.
  std::vector<Piece> pieces(std::string_view text) const;
  bool is_end(std::int32_t id) const;

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> end_tokens_;  // sorted
};

}  // namespace bl::openai
