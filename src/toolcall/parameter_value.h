#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "toolcall/json_scanner.h"
#include "toolcall/tool_set.h"

namespace bl {

// Finds the first place of a text in a stream (Knuth, Morris, Pratt).
class TextFinder {
 public:
  explicit TextFinder(std::string_view text);
  // Whether this byte ends the text. `released` bytes in front of it, which looked like the text's
  // beginning before, turned out not to be; the byte itself is one of them unless pending() > 0.
  bool push(char byte, std::size_t& released);
  // Bytes at the end of the stream that may begin the text.
  std::size_t pending() const { return matched_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::vector<std::size_t> back_;  // where to go on after a mismatch
  std::size_t matched_ = 0;
};

// How the type of a bare value is known.
struct ValueType {
  TypeSet schema;              // what the tool's schema allows
  std::optional<bool> string;  // what the call itself says: a string, or JSON
};

// Reads the value of one parameter up to its closing tag and writes it as JSON. Strings are written
// as they come; other values when they are whole.
class ParameterValue {
 public:
  enum class Status : std::uint8_t {
    kMore,
    kDone,
    kDoneEarlier,  // the value ended consumed() bytes after its begin; read again from there
  };
  struct Syntax {
    std::string_view close;
    bool lines = false;  // a line end before and after the value is not part of it
    bool cdata = false;  // a string may stand in <![CDATA[ and ]]>
  };

  ParameterValue(const Syntax& syntax, const ValueType& type);

  // Appends what is certain to `out`.
  Status push(char byte, std::string& out);
  // Whether bytes are written as they come, and so are dealt with.
  bool streams() const { return streams_; }
  std::size_t consumed() const { return consumed_; }
  // The text has ended inside the value: appends what is left of a string.
  void finish(std::string& out);

 private:
  Status push_value(char byte, std::string& out);
  Status push_cdata(char byte, std::string& out);
  Status push_string(char byte, std::string& out);
  Status push_whole(char byte, std::string& out);
  void write(char byte, std::string& out);
  void write_whole(std::string_view text, std::string& out);
  void scan(char byte);

  TextFinder close_;
  bool cdata_;  // the value may still turn out to be a CDATA section
  std::size_t cdata_matched_ = 0;
  bool lines_;
  ValueType type_;
  bool streams_;
  bool begun_ = false;     // the string's quote has been written
  bool first_ = true;      // no byte of a string has come
  bool line_end_ = false;  // a line end that may be the last
  std::string text_;       // of a value that is written when it is whole
  JsonScanner scanner_;    // follows JSON, so that a closing tag inside its strings is text
  bool json_ = true;       // the value is JSON so far
  bool json_done_ = false;
  std::size_t first_close_ = 0;  // the end of the first closing tag, if it stood in a JSON string
  std::size_t consumed_ = 0;
};

}  // namespace bl
