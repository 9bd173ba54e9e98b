#include "text/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/unicode.h"

namespace bl {

void AddedTokens::add(AddedToken token) {
  id_limit_ = std::max(id_limit_, token.id + 1);
  const auto [known, is_new] = by_content_.try_emplace(token.content, tokens_.size());
  if (is_new) {
    by_id_[token.id] = tokens_.size();
    tokens_.push_back(std::move(token));
  } else {  // a repeated entry can only make the token special
    tokens_[known->second].special |= token.special;
  }
}

void AddedTokens::finish(const std::function<std::string(std::string_view)>& normalize) {
  // Special tokens come first, so that they win over others of the same (normalized) content.
  std::vector<std::int32_t> raw;
  std::vector<std::int32_t> normalized;
  for (const bool special : {true, false}) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].special != special || !tokens_[i].in_text) continue;
      const bool as_normalized = tokens_[i].normalized;
      (as_normalized ? normalized : raw).push_back(static_cast<std::int32_t>(i));
      Finder& finder = as_normalized ? normalized_ : raw_;
      finder.patterns.push_back(as_normalized ? normalize(tokens_[i].content) : tokens_[i].content);
    }
  }
  make_finder(raw_, raw);
  make_finder(normalized_, normalized);
}

void AddedTokens::make_finder(Finder& finder, const std::vector<std::int32_t>& indices) {
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  entries.reserve(indices.size());
  for (std::size_t i = indices.size(); i-- > 0;) {  // so that the first of equal patterns wins
    const std::string& pattern = finder.patterns[i];
    if (pattern.empty()) continue;
    entries.emplace_back(pattern, indices[i]);
    finder.starts[static_cast<unsigned char>(pattern.front())] = true;
  }
  finder.trie = ByteTrie(std::move(entries));
}

const AddedToken* AddedTokens::find(int id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

bool AddedTokens::adjust(const AddedToken& token, std::string_view text, std::size_t used,
                         TextPart& part) const {
  if (token.single_word) {
    const bool word_before =
        part.begin > 0 && is_word_character(code_point_before(text, part.begin).value);
    const bool word_after =
        part.end < text.size() && is_word_character(code_point_at(text, part.end).value);
    if (word_before || word_after) return false;
  }
  if (token.lstrip) {
    while (part.begin > used) {
      const CodePoint c = code_point_before(text, part.begin);
      if (!is_white_space(c.value)) break;
      part.begin -= c.size;
    }
  }
  if (token.rstrip) {
    while (part.end < text.size()) {
      const CodePoint c = code_point_at(text, part.end);
      if (!is_white_space(c.value)) break;
      part.end += c.size;
    }
  }
  return true;
}

std::vector<std::size_t> AddedTokens::special_begins(std::string_view text) const {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (special_may_begin(raw_, text, i) || special_may_begin(normalized_, text, i)) {
      begins.push_back(i);
    }
  }
  return begins;
}

bool AddedTokens::special_may_begin(const Finder& finder, std::string_view text,
                                    std::size_t at) const {
  if (finder.trie.empty() || !finder.starts[static_cast<unsigned char>(text[at])]) return false;
  const ByteTrie::Match match = finder.trie.longest(text, at);
  if (match.size > 0 && tokens_[static_cast<std::size_t>(match.value)].special) return true;
  int node = ByteTrie::kRoot;
  for (std::size_t i = at; i < text.size(); ++i) {
    node = finder.trie.step(node, text[i]);
    if (node == ByteTrie::kNone) return false;
  }
  return true;  // the text ends inside a token
}

std::vector<TextPart> AddedTokens::split(std::string_view text, const Search& search) const {
  const Finder& finder = search.normalized ? normalized_ : raw_;
  std::vector<TextPart> parts;
  std::size_t used = 0;  // `parts` covers the text up to here
  if (!finder.trie.empty()) {
    std::size_t i = 0;
    while (i < text.size()) {
      if (!finder.starts[static_cast<unsigned char>(text[i])]) {
        ++i;
        continue;
      }
      const ByteTrie::Match match = finder.trie.longest(text, i);
      if (match.size == 0) {
        ++i;
        continue;
      }
      const AddedToken& token = tokens_[static_cast<std::size_t>(match.value)];
      if (token.special && std::binary_search(search.plain.begin(), search.plain.end(), i)) {
        ++i;
        continue;
      }
      TextPart part{i, i + match.size, token.id};
      i += match.size;
      if (token.special && !search.special) continue;
      if (!adjust(token, text, used, part)) continue;
      if (used < part.begin) parts.push_back({used, part.begin, -1});
      parts.push_back(part);
      used = part.end;
    }
  }
  if (used < text.size()) parts.push_back({used, text.size(), -1});
  return parts;
}

}  // namespace bl
