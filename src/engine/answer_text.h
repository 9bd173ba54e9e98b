#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/ban_filter.h"
#include "engine/request.h"
#include "engine/stop_filter.h"
#include "text/text_stream.h"

namespace bl {

// The strings that a request's answers are searched for; shared by all of them.
struct AnswerRules {
  AnswerRules() = default;
  // Throws kInvalidArgument for an empty string.
  explicit AnswerRules(const SamplingParams& params);
  std::shared_ptr<const TextMatcher> stops{};   // stop strings; null: none
  std::shared_ptr<const TextMatcher> banned{};  // banned strings in lower case; null: none
};

// Turns generated tokens into text: decodes them, holds text back while a stop string may come of
// it, and notices banned strings.
//
// Invariant: push() and finish() return only whole characters that come before any stop string.
class AnswerText {
 public:
  // The tokenizer and `special.shown` must outlive it. `before`: the tokens whose text the answer
  // continues; empty where it stands by itself.
  AnswerText(const Tokenizer& tokenizer, SpecialText special, const AnswerRules& rules,
             std::span<const std::int32_t> before);

  // Adds a token. Returns the text that is certain now, unless a banned string takes it back.
  std::string push(std::int32_t id);
  // Says that no token follows. The text that becomes certain with that may complete a banned
  // string (is_banned()); then take_back() follows, and tokens may follow after it.
  void close();
  // Returns the rest of the text, at the end of the answer.
  std::string finish();
  bool stopped() const { return filter_.stopped(); }
  std::string stop_string() const { return filter_.stop_string(); }
  // The stop string, and the text of the last token behind it.
  const std::string& withheld() const { return filter_.withheld(); }
  // How many of the last tokens contribute to withheld(). `ids`: the answer's tokens, behind those
  // that it continues.
  std::size_t withheld_tokens(std::span<const std::int32_t> ids) const;

  // Leaves `bytes` more bytes at the beginning of the text out, which belong to the prompt.
  void leave_out(std::size_t bytes) { left_out_ += bytes; }

  // Whether the last token, or close(), has completed a banned string that ends before any stop
  // string.
  bool is_banned() const { return banned_; }
  // How many of the newest tokens may have to be taken back, or, with is_banned(), must be.
  std::size_t open_tokens() const { return bans_ ? bans_->open_tokens() : 0; }
  // Removes the newest `tokens` tokens. `before`: all tokens that stay, including the prompt's.
  // Returns the whole characters of the text that is removed.
  std::string take_back(std::size_t tokens, std::span<const std::int32_t> before);

 private:
  struct Mark {
    TextMatcher::State filter = 0;
    std::size_t left_out = 0;
    std::string text{};  // the text that came with the token
  };
  // The end of `before` that a decoder must have seen to decode the tokens behind it.
  std::span<const std::int32_t> end_of(std::span<const std::int32_t> before) const;
  std::unique_ptr<TextStream> stream_of(std::span<const std::int32_t> ids) const;
  std::size_t bytes_held(std::span<const std::int32_t> before) const;
  std::string without_left_out(std::string text);
  bool bans_before(const StopFilter& filter) const;

  const Tokenizer& tokenizer_;
  SpecialText special_;
  std::unique_ptr<TextStream> stream_;
  StopFilter filter_;
  std::optional<BanFilter> bans_;
  std::deque<Mark> marks_;  // with banned strings: the state before each open token
  std::size_t left_out_ = 0;
  std::optional<std::string> last_;  // the text that close() has made certain
  bool banned_ = false;
  bool finished_ = false;
};

}  // namespace bl
