#include "server/infill.h"

#include <algorithm>
#include <span>

#include "text/tokenizer.h"

namespace bl::server {
namespace {

struct Spelling {
  const char* prefix;
  const char* suffix;
  const char* middle;  // null: none
  bool suffix_first = false;
};
constexpr Spelling kSpellings[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "hole\xEF\xBD\x9C>",
     "<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "end\xEF\xBD\x9C>"},
    {"\xE2\x96\x81<PRE>", "\xE2\x96\x81<SUF>", "\xE2\x96\x81<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]"},
    {"[PREFIX]", "[SUFFIX]", nullptr, true},
};

std::optional<std::int32_t> first_of(const Tokenizer& tokenizer,
                                     std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto id = tokenizer.token_to_id(name)) return *id;
  }
  return std::nullopt;
}

// The text by strangers, without the tokens that it may spell.
std::vector<std::int32_t> plain(const Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = false});
}

void append(std::vector<std::int32_t>& to, std::span<const std::int32_t> ids) {
  to.insert(to.end(), ids.begin(), ids.end());
}

// The further files, the first ones first, as far as there is room.
std::vector<std::int32_t> files_prompt(const Tokenizer& tokenizer, const InfillTokens& tokens,
                                       const InfillParts& parts, std::size_t room) {
  std::vector<std::int32_t> ids;
  if (parts.files.empty()) return ids;
  if (tokens.repository) {
    ids.push_back(*tokens.repository);
    append(ids, plain(tokenizer, "myproject\n"));
  }
  for (const auto& [name, text] : parts.files) {
    std::vector<std::int32_t> file;
    if (tokens.file) {
      file.push_back(*tokens.file);
      append(file, plain(tokenizer, name + "\n"));
    } else {
      append(file, plain(tokenizer, "\n\n--- snippet ---\n\n"));
    }
    append(file, plain(tokenizer, text));
    if (ids.size() + file.size() > room) break;
    append(ids, file);
  }
  if (tokens.file) {
    ids.push_back(*tokens.file);
    append(ids, plain(tokenizer, "filename\n"));
  }
  return ids.size() <= room ? ids : std::vector<std::int32_t>{};
}

}  // namespace

std::optional<InfillTokens> find_infill_tokens(const Tokenizer& tokenizer) {
  for (const Spelling& spelling : kSpellings) {
    const auto prefix = tokenizer.token_to_id(spelling.prefix);
    const auto suffix = tokenizer.token_to_id(spelling.suffix);
    if (!prefix || !suffix) continue;
    InfillTokens tokens{.prefix = *prefix, .suffix = *suffix};
    if (spelling.middle != nullptr) {
      const auto middle = tokenizer.token_to_id(spelling.middle);
      if (!middle) continue;
      tokens.middle = *middle;
    }
    tokens.suffix_first = spelling.suffix_first;
    tokens.repository = first_of(tokenizer, {"<|repo_name|>", "<reponame>", "<|reponame|>"});
    tokens.file = first_of(tokenizer, {"<|file_sep|>", "<file_sep>", "<filename>"});
    return tokens;
  }
  return std::nullopt;
}

std::vector<std::int32_t> infill_prompt(const Tokenizer& tokenizer, const InfillTokens& tokens,
                                        const InfillParts& parts, std::size_t most) {
  constexpr std::size_t kMarks = 4;  // the three marks and BOS
  const std::vector<std::int32_t> prefix = plain(tokenizer, parts.prefix);
  const std::vector<std::int32_t> suffix = plain(tokenizer, parts.suffix);
  const std::vector<std::int32_t> begun = plain(tokenizer, parts.begun);
  const std::size_t room = most - std::min(most, kMarks + begun.size());
  // The text before the gap says more about it than the text behind it.
  const std::size_t after = std::min(suffix.size(), room / 4);
  const std::size_t before = std::min(prefix.size(), room - after);
  const std::span<const std::int32_t> near_prefix = std::span(prefix).last(before);
  const std::span<const std::int32_t> near_suffix = std::span(suffix).first(after);
  std::vector<std::int32_t> ids;
  if (const auto bos = tokenizer.bos_id()) {
    const std::vector<std::int32_t> empty = tokenizer.encode("");
    if (!empty.empty() && empty.front() == *bos) ids.push_back(*bos);
  }
  append(ids, files_prompt(tokenizer, tokens, parts, room - before - after));
  const auto add_prefix = [&] {
    ids.push_back(tokens.prefix);
    append(ids, near_prefix);
  };
  const auto add_suffix = [&] {
    ids.push_back(tokens.suffix);
    append(ids, near_suffix);
  };
  if (tokens.suffix_first) {
    add_suffix();
    add_prefix();
  } else {
    add_prefix();
    add_suffix();
  }
  if (tokens.middle >= 0) ids.push_back(tokens.middle);
  append(ids, begun);
  return ids;
}

}  // namespace bl::server
