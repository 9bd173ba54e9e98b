#include "api/begun_object.h"

#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace bl::openai {
namespace {

std::optional<Json> object_in(std::string_view text) {
  try {
    Json value = parse_json(text, "arguments");
    if (value.is_object()) return value;
  } catch (const Error&) {
  }
  return std::nullopt;
}

// Finds how much of a text can be kept, and which brackets close it.
class Cut {
 public:
  explicit Cut(std::string_view text) : text_(text) {
    for (at_ = 0; at_ < text_.size() && !over_; ++at_) read(text_[at_]);
  }
  std::string closed() const {
    return std::string(text_.substr(0, kept_)) + std::string(brackets_.rbegin(), brackets_.rend());
  }

 private:
  void read(char byte) {
    if (in_string_) return read_string(byte);
    switch (byte) {
      case '"':
        in_string_ = true;
        return;
      case '{':
      case '[':
        brackets_ += byte == '{' ? '}' : ']';
        value_follows_ = byte == '[';
        return keep(at_ + 1);
      case '}':
      case ']':
        if (brackets_.empty() || brackets_.back() != byte) {
          over_ = true;
          return;
        }
        brackets_.pop_back();
        over_ = brackets_.empty();
        return keep(at_ + 1);
      case ',':
        value_follows_ = !brackets_.empty() && brackets_.back() == ']';
        return keep(at_);
      case ':':
        value_follows_ = true;
        return;
      default:
        return;
    }
  }
  void read_string(char byte) {
    if (byte == '\\') {
      ++at_;  // the next byte cannot end the string
    } else if (byte == '"') {
      in_string_ = false;
      if (value_follows_) keep(at_ + 1);
    }
  }
  // The text up to `end` and the brackets that are open now are whole JSON. No bracket is opened or
  // closed without this, so that they stay the right ones.
  void keep(std::size_t end) { kept_ = end; }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t kept_ = 0;
  std::string brackets_;  // that close what is open, the outermost first
  bool in_string_ = false;
  bool value_follows_ = false;  // a string here is a value, not a key
  bool over_ = false;
};

}  // namespace

Json begun_object(std::string_view text) {
  if (auto whole = object_in(text)) return *std::move(whole);
  return object_in(Cut(text).closed()).value_or(Json::object());
}

}  // namespace bl::openai
