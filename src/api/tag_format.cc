#include "api/tag_format.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/tokenizer.h"

namespace bl::openai {
namespace {

using Placeholder = std::pair<std::string_view, const char*>;
constexpr std::array<Placeholder, 3> kPlaceholders{{
    {"{index}", "[0-9]{1,4}"},
    {"{number}", "[0-9]{1,4}"},
    {"{id}", "[a-zA-Z0-9]{9}"},
}};

// Adds a plain text, whose placeholders become patterns.
void add_plain(std::string_view text, std::vector<OrderedJson>& to) {
  while (!text.empty()) {
    std::size_t at = text.npos;
    const Placeholder* found = nullptr;
    for (const Placeholder& one : kPlaceholders) {
      const std::size_t place = text.find(one.first);
      if (place >= at) continue;
      at = place;
      found = &one;
    }
    if (at > 0) to.push_back({{"type", "const_string"}, {"value", text.substr(0, at)}});
    if (found == nullptr) return;
    to.push_back(TagFormat::regex(found->second));
    text.remove_prefix(at + found->first.size());
  }
}

}  // namespace

TagFormat::TagFormat(const Tokenizer& tokenizer, std::span<const std::int32_t> end_tokens)
    : tokenizer_(tokenizer), end_tokens_(end_tokens.begin(), end_tokens.end()) {
  std::sort(end_tokens_.begin(), end_tokens_.end());
}

bool TagFormat::is_end(std::int32_t id) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), id);
}

std::vector<TagFormat::Piece> TagFormat::pieces(std::string_view text) const {
  std::vector<Piece> pieces;
  std::size_t done = 0;
  for (const std::int32_t id : tokenizer_.encode(text, {.add_special = false})) {
    if (!tokenizer_.is_special(id)) continue;
    const std::string_view token = tokenizer_.id_to_token(id);
    const std::size_t at = token.empty() ? text.npos : text.find(token, done);
    if (at == text.npos) continue;
    if (at > done) pieces.push_back({std::string(text.substr(done, at - done))});
    pieces.push_back({std::string(token), id});
    done = at + token.size();
    if (is_end(id)) return pieces;
  }
  if (done < text.size()) pieces.push_back({std::string(text.substr(done))});
  return pieces;
}

OrderedJson TagFormat::literal(std::string_view text) const {
  std::vector<OrderedJson> elements;
  for (const Piece& piece : pieces(text)) {
    if (piece.token < 0) {
      add_plain(piece.text, elements);
    } else if (!is_end(piece.token)) {
      elements.push_back({{"type", "token"}, {"token", piece.token}});
    }
  }
  return sequence(std::move(elements));
}

bool TagFormat::ends_answer(std::string_view text) const {
  const std::vector<Piece> all = pieces(text);
  return !all.empty() && is_end(all.back().token);
}

std::int32_t TagFormat::first_token(std::string_view text) const {
  const std::vector<Piece> all = pieces(text);
  return all.empty() ? -1 : all.front().token;
}

std::vector<std::int32_t> TagFormat::special_in(const std::vector<std::string>& texts) const {
  std::vector<std::int32_t> ids;
  for (const std::string& text : texts) {
    for (const Piece& piece : pieces(text)) {
      const bool is_new = std::find(ids.begin(), ids.end(), piece.token) == ids.end();
      if (piece.token >= 0 && !is_end(piece.token) && is_new) ids.push_back(piece.token);
    }
  }
  return ids;
}

OrderedJson TagFormat::until(const std::vector<std::string>& ends,
                             const std::vector<std::int32_t>& inside) const {
  if (first_token(ends.front()) < 0) {
    return {{"type", "tag"},
            {"begin", ""},
            {"content", {{"type", "any_text"}}},
            {"end", OrderedJson(ends)}};
  }
  std::vector<OrderedJson> last;
  std::vector<std::int32_t> first;
  for (const std::string& end : ends) {
    last.push_back(literal(end));
    first.push_back(first_token(end));
  }
  std::vector<std::int32_t> others;
  for (const std::int32_t id : inside) {
    if (std::find(first.begin(), first.end(), id) == first.end()) others.push_back(id);
  }
  return sequence({tokens(OrderedJson::array(), others, first), any_of(std::move(last))});
}

OrderedJson TagFormat::tokens(OrderedJson rules, const std::vector<std::int32_t>& inside,
                              const std::vector<std::int32_t>& excluded) {
  if (rules.empty() && inside.empty()) {
    return star({{"type", "exclude_token"}, {"exclude_tokens", OrderedJson(excluded)}});
  }
  // The library matches a star in time and memory that grow with the square of the text, but this
  // in a straight line. It must have a rule.
  for (const std::int32_t id : inside) rules.push_back(OrderedJson::array({id, sequence({})}));
  return {{"type", "token_dispatch"},
          {"rules", std::move(rules)},
          {"exclude_tokens", OrderedJson(excluded)}};
}

OrderedJson TagFormat::sequence(std::vector<OrderedJson> elements) {
  std::vector<OrderedJson> flat;
  for (OrderedJson& one : elements) {
    if (one.at("type") == "const_string" && one.at("value") == "") continue;
    if (one.at("type") != "sequence") {
      flat.push_back(std::move(one));
      continue;
    }
    for (OrderedJson& inner : one["elements"]) flat.push_back(std::move(inner));
  }
  if (flat.empty()) return {{"type", "const_string"}, {"value", ""}};
  if (flat.size() == 1) return std::move(flat.front());
  return {{"type", "sequence"}, {"elements", std::move(flat)}};
}

OrderedJson TagFormat::any_of(std::vector<OrderedJson> elements) {
  if (elements.size() == 1) return std::move(elements.front());
  return {{"type", "or"}, {"elements", std::move(elements)}};
}

OrderedJson TagFormat::optional(OrderedJson content) {
  return {{"type", "optional"}, {"content", std::move(content)}};
}

OrderedJson TagFormat::star(OrderedJson content) {
  return {{"type", "star"}, {"content", std::move(content)}};
}

OrderedJson TagFormat::regex(std::string pattern) {
  return {{"type", "regex"}, {"pattern", std::move(pattern)}};
}

OrderedJson TagFormat::schema(OrderedJson schema) {
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

}  // namespace bl::openai
