#include "toolcall/literal_reader.h"

#include <charconv>

#include "base/utf8.h"
#include "toolcall/json_scanner.h"

namespace bl {
namespace {

bool is_literal_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

// The escapes of one letter that Python knows, and their bytes.
constexpr std::string_view kEscapeNames = "\\'\"abfnrtv";
constexpr std::string_view kEscapeBytes = "\\'\"\a\b\f\n\r\t\v";

}  // namespace

LiteralReader::Status LiteralReader::push(char byte, std::string& out) {
  const Status status = step(byte, out);
  if (status == Status::kError) {
    out += held();
    out.push_back(byte);
  }
  return status;
}

// The text that was read and is not written yet.
std::string LiteralReader::held() const {
  std::string text = comma_ ? "," : "";
  switch (state_) {
    case State::kWord:
    case State::kBareKey:
      return text + word_;
    case State::kDelimiter:
      return text + delimiter_.substr(0, matched_);
    case State::kString:
      return word_.empty() ? text : text + '\\' + word_;
    default:
      return text;
  }
}

LiteralReader::Status LiteralReader::step(char byte, std::string& out) {
  switch (state_) {
    case State::kString:
      return push_string(byte, out);
    case State::kDelimiter:
      return push_delimiter(byte, out);
    case State::kWord:
      return push_word(byte, out);
    case State::kBareKey:
      return push_bare_key(byte, out);
    default:
      break;
  }
  if (is_literal_space(byte)) return Status::kMore;
  switch (state_) {
    case State::kItem:
      if (byte == ']' || byte == ')') return close(byte, out);
      return begin(byte, out);
    case State::kKey:
      if (byte == '}') return close(byte, out);
      key_ = true;
      return begin(byte, out);
    case State::kColon:
      if (byte != ':') return Status::kError;
      out += ": ";
      state_ = State::kValue;
      return Status::kMore;
    case State::kNext:
      if (byte != ',') return close(byte, out);
      comma_ = true;
      state_ = open_.back() == '{' ? State::kKey : State::kItem;
      return Status::kMore;
    default:
      return begin(byte, out);
  }
}

LiteralReader::Status LiteralReader::begin(char byte, std::string& out) {
  if (byte == '[' || byte == '{' || (byte == '(' && dialect_ == Dialect::kPython)) {
    return key_ ? Status::kError : open(byte, out);
  }
  if (dialect_ == Dialect::kPython) {
    if (byte == '\'' || byte == '"') return begin_string(byte, out);
  } else if (byte == delimiter_.front()) {
    matched_ = 0;
    state_ = State::kDelimiter;
    return push_delimiter(byte, out);
  } else if (key_) {
    word_.clear();
    state_ = State::kBareKey;
    return push_bare_key(byte, out);
  }
  constexpr std::string_view kEnds = ",:]})(";
  if (kEnds.find(byte) != kEnds.npos) return Status::kError;
  word_.assign(1, byte);
  state_ = State::kWord;
  return Status::kMore;
}

LiteralReader::Status LiteralReader::begin_string(char byte, std::string& out) {
  separate(out);
  out.push_back('"');
  quote_ = byte;
  word_.clear();
  matched_ = 0;
  escape_digits_ = 0;
  state_ = State::kString;
  return Status::kMore;
}

LiteralReader::Status LiteralReader::push_string(char byte, std::string& out) {
  return dialect_ == Dialect::kPython ? push_python_string(byte, out)
                                      : push_delimited_string(byte, out);
}

LiteralReader::Status LiteralReader::push_python_string(char byte, std::string& out) {
  if (escape_digits_ != 0) return push_escape(byte, out);
  if (byte == quote_) return end_string(out);
  if (byte == '\\') {
    escape_digits_ = -1;
    return Status::kMore;
  }
  if (byte == '\n') return Status::kError;  // Python ends a line's string at the end of the line
  append_json_byte(byte, out);
  return Status::kMore;
}

LiteralReader::Status LiteralReader::push_escape(char byte, std::string& out) {
  if (escape_digits_ > 0) {
    word_.push_back(byte);
    if (--escape_digits_ > 0) return Status::kMore;
    std::uint32_t value = 0;
    const char* const last = word_.data() + word_.size();
    const auto [end, error] = std::from_chars(word_.data() + 1, last, value, 16);
    if (error != std::errc() || end != last || value > 0x10ffff) {
      return Status::kError;
    }
    word_.clear();
    std::string character;
    const bool surrogate = value >= 0xd800 && value < 0xe000;
    append_utf8(surrogate ? 0xfffd : static_cast<char32_t>(value), character);
    for (const char part : character) append_json_byte(part, out);
    return Status::kMore;
  }
  escape_digits_ = byte == 'x' ? 2 : byte == 'u' ? 4 : byte == 'U' ? 8 : 0;
  if (escape_digits_ > 0) {
    word_.assign(1, byte);
    return Status::kMore;
  }
  if (byte == '\n') return Status::kMore;  // an escaped line end is no character
  const std::size_t at = kEscapeNames.find(byte);
  if (at != kEscapeNames.npos) {
    append_json_byte(kEscapeBytes[at], out);
  } else if (byte == '0') {
    append_json_byte('\0', out);
  } else {
    append_json_byte('\\', out);
    append_json_byte(byte, out);
  }
  return Status::kMore;
}

LiteralReader::Status LiteralReader::push_delimited_string(char byte, std::string& out) {
  // Delimiters begin with a byte that they do not repeat, so a mismatch can only begin a new one.
  if (byte == delimiter_[matched_]) {
    if (++matched_ < delimiter_.size()) return Status::kMore;
    return end_string(out);
  }
  for (std::size_t i = 0; i < matched_; ++i) append_json_byte(delimiter_[i], out);
  matched_ = 0;
  if (byte == delimiter_.front()) {
    matched_ = 1;
  } else {
    append_json_byte(byte, out);
  }
  return Status::kMore;
}

LiteralReader::Status LiteralReader::push_delimiter(char byte, std::string& out) {
  if (byte != delimiter_[matched_]) return Status::kError;
  if (++matched_ < delimiter_.size()) return Status::kMore;
  return begin_string(0, out);
}

LiteralReader::Status LiteralReader::push_word(char byte, std::string& out) {
  constexpr std::string_view kEnds = ",:]})";
  const bool space = is_literal_space(byte) && dialect_ == Dialect::kPython;
  if (!space && kEnds.find(byte) == kEnds.npos) {
    if (dialect_ == Dialect::kPython && (byte == '\'' || byte == '"' || word_.size() >= 4096)) {
      return Status::kError;
    }
    word_.push_back(byte);
    return Status::kMore;
  }
  if (!write_word(out)) return Status::kError;
  if (key_) {
    key_ = false;
    state_ = State::kColon;
  } else if (end_value() == Status::kDone) {
    return Status::kDoneBefore;
  }
  return step(byte, out);
}

LiteralReader::Status LiteralReader::push_bare_key(char byte, std::string& out) {
  if (byte != ':') {
    if (byte == ',' || byte == '}' || word_.size() >= 4096) return Status::kError;
    word_.push_back(byte);
    return Status::kMore;
  }
  separate(out);
  append_json_quoted(word_, out);
  key_ = false;
  out += ": ";
  state_ = State::kValue;
  return Status::kMore;
}

LiteralReader::Status LiteralReader::open(char bracket, std::string& out) {
  if (open_.size() == kMaxDepth) return Status::kError;
  separate(out);
  open_.push_back(bracket);
  comma_ = false;
  out.push_back(bracket == '{' ? '{' : '[');
  state_ = bracket == '{' ? State::kKey : State::kItem;
  return Status::kMore;
}

LiteralReader::Status LiteralReader::close(char bracket, std::string& out) {
  const char wanted = bracket == ']' ? '[' : bracket == ')' ? '(' : bracket == '}' ? '{' : '\0';
  if (wanted == '\0' || open_.empty() || open_.back() != wanted) return Status::kError;
  open_.pop_back();
  comma_ = false;
  out.push_back(wanted == '{' ? '}' : ']');
  return end_value();
}

LiteralReader::Status LiteralReader::end_string(std::string& out) {
  out.push_back('"');
  if (!key_) return end_value();
  key_ = false;
  state_ = State::kColon;
  return Status::kMore;
}

LiteralReader::Status LiteralReader::end_value() {
  state_ = State::kNext;
  return open_.empty() ? Status::kDone : Status::kMore;
}

bool LiteralReader::write_word(std::string& out) {
  while (!word_.empty() && is_literal_space(word_.back())) word_.pop_back();
  std::string_view text = word_;
  if (text == "True") text = "true";
  if (text == "False") text = "false";
  if (text == "None") text = "null";
  WholeJson json;
  json.push(text);
  const bool valid = json.is_whole();
  if (!valid && dialect_ == Dialect::kPython) return false;
  separate(out);
  if (valid && !key_) {
    out += text;
  } else {
    append_json_quoted(text, out);
  }
  return true;
}

bool LiteralReader::finish(std::string& out) {
  if (state_ != State::kWord || !open_.empty() || key_) return false;
  return write_word(out);
}

void LiteralReader::separate(std::string& out) {
  if (comma_) out += ", ";
  comma_ = false;
}

}  // namespace bl
