#include "api/fill_in_middle.h"

#include <array>
#include <optional>

#include "api/request_error.h"
#include "text/tokenizer.h"

namespace bl::openai {
namespace {

// The names that vocabularies give to these tokens.
struct Names {
  std::string_view prefix, suffix, middle;
  bool suffix_first = false;  // and then no token stands before the middle
};
constexpr std::array kNames{
    Names{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    Names{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    Names{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    Names{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    Names{"<|fim_begin|>", "<|fim_hole|>", "<|fim_end|>"},
    Names{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    Names{"▁<PRE>", "▁<SUF>", "▁<MID>"},
    Names{"<PRE>", "<SUF>", "<MID>"},
    Names{"[PREFIX]", "[SUFFIX]", "", true},
};

struct Marks {
  int prefix = 0, suffix = 0;
  std::optional<int> middle{};
  bool suffix_first = false;
};

std::optional<Marks> marks_of(const Tokenizer& tokenizer) {
  for (const Names& names : kNames) {
    const std::optional<int> prefix = tokenizer.token_to_id(names.prefix);
    const std::optional<int> suffix = tokenizer.token_to_id(names.suffix);
    if (!prefix || !suffix) continue;
    Marks marks{*prefix, *suffix, {}, names.suffix_first};
    if (!names.middle.empty()) {
      marks.middle = tokenizer.token_to_id(names.middle);
      if (!marks.middle) continue;
    }
    return marks;
  }
  return std::nullopt;
}

}  // namespace

bool fills_in_middle(const Tokenizer& tokenizer) { return marks_of(tokenizer).has_value(); }

std::vector<std::int32_t> fill_in_middle(const Tokenizer& tokenizer, std::string_view prefix,
                                         std::string_view suffix) {
  const std::optional<Marks> marks = marks_of(tokenizer);
  if (!marks) {
    fail_at(ErrorCode::kUnsupported, "suffix",
            "this model has no tokens that mark a prefix and a suffix, so it cannot fill in the "
            "middle; leave suffix out");
  }
  // What the tokenizer puts before a text stands before the first mark.
  std::vector<std::int32_t> ids;
  const std::optional<int> begin = tokenizer.bos_id();
  const std::vector<std::int32_t> sample = tokenizer.encode("a");
  if (begin && !sample.empty() && sample.front() == *begin) ids.push_back(*begin);
  const auto add = [&](int mark, std::string_view text) {
    ids.push_back(mark);
    const auto more = tokenizer.encode(text, {.add_special = false});
    ids.insert(ids.end(), more.begin(), more.end());
  };
  if (marks->suffix_first) {
    add(marks->suffix, suffix);
    add(marks->prefix, prefix);
  } else {
    add(marks->prefix, prefix);
    add(marks->suffix, suffix);
  }
  if (marks->middle) ids.push_back(*marks->middle);
  return ids;
}

}  // namespace bl::openai
