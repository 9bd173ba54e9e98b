#include "toolcall/json_scanner.h"

namespace bl {
namespace {

bool is_json_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

bool is_hex(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

void JsonScanner::reset() { *this = JsonScanner(); }

JsonScanner::Status JsonScanner::push(char byte) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kUnicode:
      return push_string(byte);
    case State::kWord:
      if (byte != *word_) return Status::kError;
      ++word_;
      return *word_ == '\0' ? end_value() : Status::kMore;
    case State::kMinus:
    case State::kZero:
    case State::kDigits:
    case State::kPoint:
    case State::kFraction:
    case State::kExponent:
    case State::kExponentSign:
    case State::kExponentDigits:
      return push_number(byte);
    default:
      break;
  }
  if (is_json_space(byte)) return Status::kMore;
  switch (state_) {
    case State::kFirstItem:
      if (byte == ']') return close('[');
      return begin_value(byte);
    case State::kFirstKey:
      if (byte == '}') return close('{');
      [[fallthrough]];
    case State::kKey:
      if (byte != '"') return Status::kError;
      key_ = true;
      return keep(State::kString);
    case State::kColon:
      return byte == ':' ? keep(State::kValue) : Status::kError;
    case State::kNext:
      if (byte == ',') return keep(open_.back() == '{' ? State::kKey : State::kValue);
      if (byte == ']') return close('[');
      if (byte == '}') return close('{');
      return Status::kError;
    default:
      return begin_value(byte);
  }
}

JsonScanner::Status JsonScanner::begin_value(char byte) {
  const auto word = [&](const char* rest) {
    word_ = rest;
    return keep(State::kWord);
  };
  switch (byte) {
    case '{':
      return open('{', State::kFirstKey);
    case '[':
      return open('[', State::kFirstItem);
    case '"':
      key_ = false;
      return keep(State::kString);
    case '-':
      return keep(State::kMinus);
    case '0':
      return keep(State::kZero);
    case 't':
      return word("rue");
    case 'f':
      return word("alse");
    case 'n':
      return word("ull");
    default:
      return is_digit(byte) ? keep(State::kDigits) : Status::kError;
  }
}

JsonScanner::Status JsonScanner::push_number(char byte) {
  const bool digit = is_digit(byte);
  const bool exponent = byte == 'e' || byte == 'E';
  switch (state_) {
    case State::kMinus:
      if (!digit) return Status::kError;
      return keep(byte == '0' ? State::kZero : State::kDigits);
    case State::kPoint:
      return digit ? keep(State::kFraction) : Status::kError;
    case State::kExponent:
      if (byte == '+' || byte == '-') return keep(State::kExponentSign);
      [[fallthrough]];
    case State::kExponentSign:
      return digit ? keep(State::kExponentDigits) : Status::kError;
    default:
      break;
  }
  if (digit && state_ != State::kZero) return Status::kMore;
  if (byte == '.' && (state_ == State::kZero || state_ == State::kDigits)) {
    return keep(State::kPoint);
  }
  if (exponent && state_ != State::kExponentDigits) return keep(State::kExponent);
  if (digit) return Status::kError;  // a digit behind a leading zero
  if (end_value() == Status::kDone) return Status::kDoneBefore;
  return push(byte);
}

JsonScanner::Status JsonScanner::push_string(char byte) {
  if (state_ == State::kUnicode) {
    if (!is_hex(byte)) return Status::kError;
    if (--count_ == 0) state_ = State::kString;
    return Status::kMore;
  }
  if (state_ == State::kEscape) {
    if (byte == 'u') {
      count_ = 4;
      return keep(State::kUnicode);
    }
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    return kEscapes.find(byte) == kEscapes.npos ? Status::kError : keep(State::kString);
  }
  if (byte == '\\') return keep(State::kEscape);
  if (byte == '"') return key_ ? keep(State::kColon) : end_value();
  return static_cast<unsigned char>(byte) < 0x20 ? Status::kError : Status::kMore;
}

JsonScanner::Status JsonScanner::open(char bracket, State state) {
  if (open_.size() == kMaxDepth) return Status::kError;
  open_.push_back(bracket);
  return keep(state);
}

JsonScanner::Status JsonScanner::close(char bracket) {
  if (open_.empty() || open_.back() != bracket) return Status::kError;
  open_.pop_back();
  return end_value();
}

JsonScanner::Status JsonScanner::end_value() {
  state_ = State::kNext;
  return open_.empty() ? Status::kDone : Status::kMore;
}

bool JsonScanner::complete_at_end() const {
  return open_.empty() && (state_ == State::kZero || state_ == State::kDigits ||
                           state_ == State::kFraction || state_ == State::kExponentDigits);
}

void WholeJson::push(std::string_view text) {
  for (const char byte : text) push(byte);
}

void WholeJson::push(char byte) {
  if (broken_) return;
  if (!done_) {
    const JsonScanner::Status status = scanner_.push(byte);
    broken_ = status == JsonScanner::Status::kError;
    done_ = status == JsonScanner::Status::kDone || status == JsonScanner::Status::kDoneBefore;
    if (status != JsonScanner::Status::kDoneBefore) return;
  }
  constexpr std::string_view kSpace = " \t\r\n";
  broken_ = kSpace.find(byte) == kSpace.npos;
  done_ = !broken_;
}

}  // namespace bl
