#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "toolcall/json_string.h"

namespace bl {

// Reads one value that is written other than in JSON, byte by byte, and writes it as JSON.
//
// kPython: a Python literal: 'text', "text", numbers, True, False, None, [..], (..), {'key':
// value}. kBraces: {key:value,key:value} with bare keys, where a string stands between two
// delimiters such as <|"|>; a bare word that is no JSON value is a string.
class LiteralReader {
 public:
  enum class Dialect : std::uint8_t { kPython, kBraces };
  enum class Status : std::uint8_t { kMore, kDone, kDoneBefore, kError };
  static constexpr std::size_t kMaxDepth = 1000;

  explicit LiteralReader(Dialect dialect, std::string_view delimiter = {})
      : dialect_(dialect), delimiter_(delimiter) {}

  // Appends to `out` what is certain after this byte. kDoneBefore: the value ended before the byte.
  // kError: `out` has all that was read, the byte included, what is no literal as it came.
  Status push(char byte, std::string& out);
  // Ends a word at the end of the text; returns whether that completes the value.
  bool finish(std::string& out);

 private:
  enum class State : std::uint8_t {
    kValue,  // a value must begin
    kItem,   // in a list: a value or its end
    kKey,    // in a dict: a key or its end
    kColon,  // behind a key
    kNext,   // behind a value: a comma or the end
    kString,
    kDelimiter,  // inside the delimiter that opens a string
    kWord,
    kBareKey,
  };

  Status step(char byte, std::string& out);
  std::string held() const;
  Status begin(char byte, std::string& out);
  Status begin_string(char byte, std::string& out);
  Status push_string(char byte, std::string& out);
  Status push_python_string(char byte, std::string& out);
  Status push_escape(char byte, std::string& out);
  Status push_delimited_string(char byte, std::string& out);
  Status push_delimiter(char byte, std::string& out);
  Status push_word(char byte, std::string& out);
  Status push_bare_key(char byte, std::string& out);
  Status open(char bracket, std::string& out);
  Status close(char bracket, std::string& out);
  Status end_string(std::string& out);
  Status end_value();
  bool write_word(std::string& out);
  void separate(std::string& out);

  Dialect dialect_;
  std::string delimiter_;
  State state_ = State::kValue;
  std::string open_;         // the open brackets
  bool comma_ = false;       // a comma is due before the next item
  bool key_ = false;         // the string or word being read is a key
  char quote_ = 0;           // which quote ends the string
  std::size_t matched_ = 0;  // bytes of the delimiter that have come
  std::string word_;         // the word being read, or an escape behind its backslash
  int escape_digits_ = 0;    // digits of \x, \u or \U that are still to come; -1: after a backslash
};

}  // namespace bl
