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

// What the texts of a request's answers are held against, made once for all of them.
struct AnswerRules {
  AnswerRules() = default;
  // Throws kInvalidArgument for an empty text.
  explicit AnswerRules(const SamplingParams& params);
  std::shared_ptr<const TextMatcher> stops{};   // null: none
  std::shared_ptr<const TextMatcher> banned{};  // in lower case; null: none
};

// Generated tokens on their way to text: decoded, held back where a stop string may begin, watched
// for banned strings.
class AnswerText {
 public:
  // The tokenizer must outlive it. `before`: the tokens that the answer goes on from; empty where
  // it stands by itself.
  AnswerText(const Tokenizer& tokenizer, bool skip_special, const AnswerRules& rules,
             std::span<const std::int32_t> before);

  // What is certain now, but for what banned strings may take back.
  std::string push(std::int32_t id);
  // That no token comes any more, unless what becomes certain with it completes a banned string:
  // then take_back() follows.
  void close();
  // The rest, at the end of the answer.
  std::string finish();
  bool stopped() const { return filter_.stopped(); }
  std::string stop_string() const { return filter_.stop_string(); }
  // That stop string and what the last token said behind it.
  const std::string& withheld() const { return filter_.withheld(); }
  // How many of the newest of `ids`, which are the answer's last ones and what it goes on from, say
  // it: all that have a part in it.
  std::size_t withheld_tokens(std::span<const std::int32_t> ids) const;

  // So many more bytes at the beginning of the text are the prompt's.
  void leave_out(std::size_t bytes) { left_out_ += bytes; }

  // Whether the last token, or close(), has completed a banned string, before any stop string.
  bool is_banned() const { return banned_; }
  // So many of the newest tokens may have to be taken back; with is_banned(): must be.
  std::size_t open_tokens() const { return bans_ ? bans_->open_tokens() : 0; }
  // The newest tokens never were; `before`: all that stay, the prompt's included. Returns what they
  // said, as far as it was whole characters.
  std::string take_back(std::size_t tokens, std::span<const std::int32_t> before);

 private:
  struct Mark {
    TextMatcher::State filter = 0;
    std::size_t left_out = 0;
    std::string text{};  // that came with the token
  };
  // What a decoder must have seen of the tokens before those that it decodes.
  std::span<const std::int32_t> end_of(std::span<const std::int32_t> before) const;
  std::unique_ptr<TextStream> stream_of(std::span<const std::int32_t> ids) const;
  std::size_t bytes_held(std::span<const std::int32_t> before) const;
  std::string without_left_out(std::string text);
  bool bans_before(const StopFilter& filter) const;

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::unique_ptr<TextStream> stream_;
  StopFilter filter_;
  std::optional<BanFilter> bans_;
  std::deque<Mark> marks_;  // with bans: what was before each open token
  std::size_t left_out_ = 0;
  std::optional<std::string> last_;  // what close() has made certain
  bool banned_ = false;
  bool finished_ = false;
};

}  // namespace bl
