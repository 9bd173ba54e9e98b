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

// Notices banned strings in text that is being generated, without regard to case (the full lower
// case of each character), and which of the newest tokens they, or what may become one, are made
// of. Those tokens must not be given out yet.
class BanFilter {
 public:
  // The texts in the form in which they are looked for. Throws kInvalidArgument for an empty one.
  static std::shared_ptr<const TextMatcher> matcher(const std::vector<std::string>& banned);
  explicit BanFilter(std::shared_ptr<const TextMatcher> banned) : banned_(std::move(banned)) {}

  // What a token says that gives no text of its own yet.
  struct Silent {
    bool is_part = false;        // of a character that a later token completes
    std::optional<char> byte{};  // all that it says, in a row of such tokens that ends with text
    bool is_left_out = false;    // it says nothing, and ends no such row
  };
  // Takes the next token and what text has become certain with it: whole characters of UTF-8. Looks
  // no further than to the end of the first banned string.
  void push(std::string_view text, Silent silent);
  // The same of text that becomes certain with the end of the answer.
  void finish(std::string_view text);

  // What the newest tokens say, in a row of bytes that has not become text.
  std::string open_row() const;

  // Where in the last text a banned string was completed: bytes before its end.
  std::optional<std::size_t> completed_at() const { return completed_at_; }
  // So many of the newest tokens may be, or after completed_at() are, of a banned string. One that
  // reaches back to tokens no longer open is taken to begin with the first open one.
  std::size_t open_tokens() const { return open_; }
  // Lets the tokens go before the newest `open_tokens()`: they will not be taken back.
  void release();
  // The newest tokens never were.
  void take_back(std::size_t tokens);

 private:
  struct Token {
    TextMatcher::State before = 0;
    std::size_t bytes = 0;  // of its text, in lower case
    std::size_t first = 0;  // … of its first character, which tokens before it may have begun
    bool silent = false;
    std::optional<std::string> row{};  // what it says in a row of bytes
  };
  std::size_t begin_of(std::string_view text) const;
  void point_to_tables(std::string_view text, std::size_t begin);
  void find_open(std::size_t bytes);

  std::shared_ptr<const TextMatcher> banned_;
  TextMatcher::State state_ = 0;
  std::deque<Token> tokens_;  // that may yet be taken back
  std::size_t open_ = 0;
  std::optional<std::size_t> completed_at_;
  std::string lower_;
};

}  // namespace bl
