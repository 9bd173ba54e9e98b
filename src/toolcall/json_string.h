#pragma once
// JSON strings, byte by byte: writing them, and reading what is inside them.

#include <cstdint>
#include <string>
#include <string_view>

namespace bl {

// Appends one byte of text as it stands inside a JSON string. Bytes of UTF-8 stay as they are.
void append_json_byte(char byte, std::string& out);
// Appends `text` with the quotes around it.
void append_json_quoted(std::string_view text, std::string& out);

// Reads the inside of a JSON string, after its opening quote.
class JsonStringReader {
 public:
  enum class Status : std::uint8_t { kMore, kDone, kError };
  // Appends to `out` what is certain after this byte. kDone at the closing quote. A surrogate
  // without its partner becomes U+FFFD.
  Status push(char byte, std::string& out);

 private:
  Status push_escape(char byte, std::string& out);
  void end_unit(std::string& out);

  enum class State : std::uint8_t { kPlain, kEscape, kUnicode } state_ = State::kPlain;
  int digits_ = 0;      // of the \uXXXX being read
  char32_t unit_ = 0;   // its value so far
  char32_t first_ = 0;  // a high surrogate that waits for its partner
};

}  // namespace bl
