#include "engine/ban_filter.h"

#include <algorithm>

#include "base/check.h"
#include "text/unicode.h"
#include "text/utf8.h"

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

void BanFilter::push(std::string_view text, bool silent) {
  completed_at_.reset();
  Token& token = tokens_.emplace_back();
  token.before = state_;
  token.silent = silent;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    lower_.clear();
    append_lower_case(c.value, lower_);
    if (i == 0) token.first = lower_.size();
    i += c.size;
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
  completed_at_.reset();
  find_open(banned_->open_bytes(state_));
}

}  // namespace bl
