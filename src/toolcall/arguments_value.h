#pragma once
#include <cstdint>
#include <string>

#include "toolcall/call_reader.h"
#include "toolcall/json_scanner.h"
#include "toolcall/json_string.h"

namespace bl {

// Reads the arguments of a call that are one JSON object, or a string that holds it, as some models
// write it.
class ArgumentsValue {
 public:
  enum class Status : std::uint8_t { kMore, kDone, kBroken };

  // Whether arguments may begin with this byte.
  static bool may_begin(char byte) { return byte == '{' || byte == '"'; }
  // Appends the JSON text of the arguments to `out`. The first byte must be one that may begin
  // them.
  Status push(char byte, std::string& out);

 private:
  bool begun_ = false;
  bool quoted_ = false;
  JsonScanner scanner_;
  JsonStringReader string_;
  bool empty_ = true;        // nothing came inside the string; that means no arguments
  bool inner_done_ = false;  // the object inside a string is whole
};

}  // namespace bl
