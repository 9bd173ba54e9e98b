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
  point_to_tables(text, begin);
}

void BanFilter::finish(std::string_view text) {
  completed_at_.reset();
  if (!tokens_.empty()) point_to_tables(text, begin_of(text));
}

std::string BanFilter::open_row() const {
  std::string row;
  auto begin = tokens_.end();
  while (begin != tokens_.begin() && std::prev(begin)->row) --begin;
  for (; begin != tokens_.end(); ++begin) row += *begin->row;
  return row;
}

// The first of the newest tokens that say the beginning of this text; where none do, the next token
// to come.
std::size_t BanFilter::begin_of(std::string_view text) const {
  std::size_t begin = tokens_.size();
  if (text.empty() || !text.starts_with(open_row())) return begin;
  while (begin > 0 && tokens_[begin - 1].row) --begin;
  return begin;
}

// The tokens from `begin` on say the text: what they have in their row, the newest one the rest. A
// character belongs to the token that completes it.
void BanFilter::point_to_tables(std::string_view text, std::size_t begin) {
  std::size_t at = std::min(begin, tokens_.size() - 1);
  const auto said = [&] { return tokens_[at].row ? tokens_[at].row->size() : text.size(); };
  std::size_t end = said();  // of what this token says
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    lower_.clear();
    append_lower_case(c.value, lower_);
    i += c.size;
    while (end < i && at + 1 < tokens_.size()) {
      ++at;
      end += said();
      // One that says nothing belongs to a character where that has begun before it.
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

// The newest tokens that hold the last `bytes` bytes of the text, and those that have begun a
// character at its end or the first of those bytes.
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
  // A row whose end is gone has said nothing yet.
  for (auto token = tokens_.rbegin(); token != tokens_.rend() && token->row; ++token) {
    token->bytes = token->first = 0;
    token->silent = true;
  }
  completed_at_.reset();
  find_open(banned_->open_bytes(state_));
}

}  // namespace bl
