#pragma once
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text_matcher.h"

namespace bl {

// Finds banned strings in text that is being generated, ignoring case (by the full lower case of
// each character), and tells which of the newest tokens belong to one or may come to. Those tokens
// must not be given out yet.
//
// Invariant: tokens that were released can no longer become part of a banned string that is found.
class BanFilter {
 public:
  // The matcher for these strings. Throws kInvalidArgument for an empty one.
  static std::shared_ptr<const TextMatcher> matcher(const std::vector<std::string>& banned);
  explicit BanFilter(std::shared_ptr<const TextMatcher> banned) : banned_(std::move(banned)) {}

  // About a token that has no text of its own yet.
  struct Silent {
    bool is_part = false;        // it is part of a character that a later token completes
    std::optional<char> byte{};  // a byte token: its run becomes text only as a whole
    bool is_left_out = false;    // it has no text at all, and ends no run of byte tokens
  };
  // Adds a token and the text that has become certain with it: whole characters of UTF-8. Looks no
  // further than to the end of the first banned string.
  void push(std::string_view text, Silent silent);
  // Adds the text that becomes certain with the end of the answer.
  void finish(std::string_view text);

  // The bytes of the newest tokens, as far as they are a run of byte tokens that is not text yet.
  std::string open_row() const;

  // Bytes of the last text up to the end of a banned string; nothing where none was completed.
  std::optional<std::size_t> completed_at() const { return completed_at_; }
  // How many of the newest tokens may become part of a banned string or, with completed_at(), are
  // part of one. A string that reaches back beyond the tokens kept counts as beginning with the
  // first of them.
  std::size_t open_tokens() const { return open_; }
  // Forgets all tokens but the newest open_tokens(): they will not be taken back.
  void release();
  // Removes the newest `tokens` tokens from the text.
  void take_back(std::size_t tokens);

 private:
  struct Token {
    TextMatcher::State before = 0;
    std::size_t bytes = 0;  // of its text in lower case
    std::size_t first = 0;  // of its first character, which earlier tokens may have begun
    bool silent = false;
    std::optional<std::string> row{};  // its bytes within a run of byte tokens
  };
  std::size_t begin_of(std::string_view text) const;
  void look_at(std::string_view text, std::size_t begin);
  void find_open(std::size_t bytes);

  std::shared_ptr<const TextMatcher> banned_;
  TextMatcher::State state_ = 0;
  std::deque<Token> tokens_;  // those that may still be taken back
  std::size_t open_ = 0;
  std::optional<std::size_t> completed_at_;
  std::string lower_;
};

}  // namespace bl
