#include "engine/ban_filter.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace bl {

std::shared_ptr<const TextMatcher> BanFilter::matcher(const std::vector<std::string>& banned) {
  std::vector<std::string> lower;
  for (const std::string& text : banned) {
    const std::string valid = to_valid_utf8(text);
    std::string& out = lower.emplace_back();
    for (std::size_t i = 0; i < valid.size();) {
      const CodePoint c = code_point_at(valid, i);
      append_lower_case(c.value, out);
      i += c.size;
    }
  }
  return std::make_shared<TextMatcher>(lower);
}

void BanFilter::push(std::string_view text, Silent silent) {
  completed_at_.reset();
  const std::size_t begin = begin_of(text);
  const bool in_row = silent.is_left_out && !tokens_.empty() && tokens_.back().row;
  Token& token = tokens_.emplace_back();
  token.before = state_;
  token.silent = silent.is_part || in_row;
  if (in_row) token.row.emplace();
  if (silent.byte) token.row = std::string(1, *silent.byte);
  look_at(text, begin);
}

void BanFilter::finish(std::string_view text) {
  completed_at_.reset();
  if (!tokens_.empty()) look_at(text, begin_of(text));
}

std::string BanFilter::open_row() const {
  std::string row;
  auto begin = tokens_.end();
  while (begin != tokens_.begin() && std::prev(begin)->row) --begin;
  for (; begin != tokens_.end(); ++begin) row += *begin->row;
  return row;
}

// The first token that contributes to `text`: the beginning of the run of byte tokens that has just
// become text, or else the token that comes next.
std::size_t BanFilter::begin_of(std::string_view text) const {
  std::size_t begin = tokens_.size();
  if (text.empty() || !text.starts_with(open_row())) return begin;
  while (begin > 0 && tokens_[begin - 1].row) --begin;
  return begin;
}

// Matches `text`, to which the tokens from `begin` on contribute: each the bytes that it has in its
// run, the newest one the rest. A character belongs to the token that completes it.
void BanFilter::look_at(std::string_view text, std::size_t begin) {
  std::size_t at = std::min(begin, tokens_.size() - 1);
  const auto said = [&] { return tokens_[at].row ? tokens_[at].row->size() : text.size(); };
  std::size_t end = said();  // of this token's bytes in the text
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    lower_.clear();
    append_lower_case(c.value, lower_);
    i += c.size;
    while (end < i && at + 1 < tokens_.size()) {
      ++at;
      end += said();
      // A token without bytes belongs to the character that has begun before it, if one has.
      if (tokens_[at].row && tokens_[at].row->empty()) tokens_[at].silent = tokens_[at - 1].silent;
    }
    Token& token = tokens_[at];
    if (token.bytes == 0) token.first = lower_.size();
    token.silent = false;
    for (const char byte : lower_) {
      state_ = banned_->next(state_, byte);
      ++token.bytes;
      if (const std::size_t matched = banned_->matched(state_); matched > 0) {
        completed_at_ = i;
        find_open(matched);
        return;
      }
    }
  }
  find_open(banned_->open_bytes(state_));
}

// Finds the tokens that hold the last `bytes` bytes of the text, and before them those that have
// begun the first character of these bytes, or a character at the end of the text.
void BanFilter::find_open(std::size_t bytes) {
  std::size_t begin = tokens_.size();
  bool in_first = true;
  while (begin > 0 && bytes > 0) {
    const Token& token = tokens_[--begin];
    in_first = bytes + token.first > token.bytes;
    bytes -= std::min(bytes, token.bytes);
  }
  while (begin > 0 && in_first && tokens_[begin - 1].silent) --begin;
  open_ = tokens_.size() - begin;
}

void BanFilter::release() {
  while (tokens_.size() > open_) tokens_.pop_front();
}

void BanFilter::take_back(std::size_t tokens) {
  BL_CHECK(tokens <= tokens_.size());
  if (tokens == 0) return;
  state_ = tokens_[tokens_.size() - tokens].before;
  tokens_.resize(tokens_.size() - tokens);
  // A run of byte tokens whose end is gone is not text yet.
  for (auto token = tokens_.rbegin(); token != tokens_.rend() && token->row; ++token) {
    token->bytes = token->first = 0;
    token->silent = true;
  }
  completed_at_.reset();
  find_open(banned_->open_bytes(state_));
}

}  // namespace bl
