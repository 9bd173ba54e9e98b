#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace bl {

// Recognises one strict JSON value (RFC 8259) that arrives byte by byte. It stores no text, only
// the open brackets, and reports an error at the first byte after which no continuation could be
// valid.
class JsonScanner {
 public:
  enum class Status : std::uint8_t {
    kMore,        // the byte belongs to the value, which goes on
    kDone,        // the byte ends the value
    kDoneBefore,  // the value ended before this byte (only numbers end so)
    kError,       // no JSON value goes on like this; the scanner must be reset
  };
  static constexpr std::size_t kMaxDepth = 1000;

  // White space before the value belongs to it.
  Status push(char byte);
  // Whether the value would be complete if the text ended here.
  bool complete_at_end() const;
  bool in_string() const { return state_ == State::kString || state_ >= State::kEscape; }
  void reset();

 private:
  enum class State : std::uint8_t {
    kValue,      // a value must begin
    kFirstItem,  // after [: a value or ]
    kFirstKey,   // after {: a key or }
    kKey,        // after a comma in an object: a key
    kColon,      // after a key
    kNext,       // after a value in a container: a comma or the end
    kWord,       // inside true, false or null
    kMinus,      // the states of a number, named after what came last
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kString,
    kEscape,   // after a backslash
    kUnicode,  // inside \uXXXX
  };

  Status begin_value(char byte);
  Status push_number(char byte);
  Status push_string(char byte);
  Status open(char bracket, State state);
  Status close(char bracket);
  Status end_value();
  Status keep(State state) {
    state_ = state;
    return Status::kMore;
  }

  State state_ = State::kValue;
  bool key_ = false;        // the string being read is a key
  std::uint8_t count_ = 0;  // hexadecimal digits, or characters of a word, that are still to come
  const char* word_ = "";   // what is still to come of true, false or null
  std::string open_;        // the open brackets
};

// Whether text that comes in pieces is one JSON value, with white space around it or without.
class WholeJson {
 public:
  void push(std::string_view text);
  bool is_whole() const { return done_ || (!broken_ && scanner_.complete_at_end()); }

 private:
  void push(char byte);

  JsonScanner scanner_;
  bool done_ = false;    // the value has ended
  bool broken_ = false;  // no further text can make it whole
};

}  // namespace bl
