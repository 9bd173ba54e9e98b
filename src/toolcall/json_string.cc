#include "toolcall/json_string.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace bl {

void append_json_byte(char byte, std::string& out) {
  switch (byte) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      if (static_cast<unsigned char>(byte) >= 0x20) {
        out.push_back(byte);
      } else {
        out += fmt::format("\\u{:04x}", static_cast<unsigned>(byte));
      }
  }
}

void append_json_quoted(std::string_view text, std::string& out) {
  out.push_back('"');
  for (const char byte : text) append_json_byte(byte, out);
  out.push_back('"');
}

JsonStringReader::Status JsonStringReader::push(char byte, std::string& out) {
  if (state_ == State::kUnicode) {
    const char low = static_cast<char>(byte | 0x20);
    int digit = -1;
    if (byte >= '0' && byte <= '9') digit = byte - '0';
    if (low >= 'a' && low <= 'f') digit = low - 'a' + 10;
    if (digit < 0) return Status::kError;
    unit_ = unit_ * 16 + static_cast<char32_t>(digit);
    if (++digits_ == 4) end_unit(out);
    return Status::kMore;
  }
  if (state_ == State::kEscape) return push_escape(byte, out);
  if (byte == '\\') {
    state_ = State::kEscape;
    return Status::kMore;
  }
  if (first_ != 0) {
    append_utf8(0xfffd, out);
    first_ = 0;
  }
  if (byte == '"') return Status::kDone;
  if (static_cast<unsigned char>(byte) < 0x20) return Status::kError;
  out.push_back(byte);
  return Status::kMore;
}

JsonStringReader::Status JsonStringReader::push_escape(char byte, std::string& out) {
  state_ = State::kPlain;
  if (byte == 'u') {
    state_ = State::kUnicode;
    digits_ = 0;
    unit_ = 0;
    return Status::kMore;
  }
  if (first_ != 0) {
    append_utf8(0xfffd, out);
    first_ = 0;
  }
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
  const std::size_t at = kNames.find(byte);
  if (at == kNames.npos) return Status::kError;
  out.push_back(kBytes[at]);
  return Status::kMore;
}

void JsonStringReader::end_unit(std::string& out) {
  state_ = State::kPlain;
  const bool low = unit_ >= 0xdc00 && unit_ < 0xe000;
  if (first_ != 0 && low) {
    append_utf8(0x10000 + ((first_ - 0xd800) << 10) + (unit_ - 0xdc00), out);
    first_ = 0;
    return;
  }
  if (first_ != 0) append_utf8(0xfffd, out);
  first_ = 0;
  if (unit_ >= 0xd800 && unit_ < 0xdc00) {
    first_ = unit_;
  } else {
    append_utf8(low ? 0xfffd : unit_, out);
  }
}

}  // namespace bl
