// Resolves escapes in string literals as Python's "unicode-escape" does.

#include "base/utf8.h"
#include "text/jinja/parser_state.h"

namespace bl::jinja {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool is_high_surrogate(char32_t c) { return c >= 0xd800 && c < 0xdc00; }
bool is_low_surrogate(char32_t c) { return c >= 0xdc00 && c < 0xe000; }

class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  // Returns false if an escape is malformed.
  bool run(std::string& out) {
    while (at_ < text_.size()) {
      const std::size_t mark = text_.find('\\', at_);
      out += text_.substr(at_, mark - at_);
      if (mark == std::string_view::npos) break;
      at_ = mark + 1;
      if (at_ >= text_.size() || !escape(out)) return false;
    }
    return true;
  }

 private:
  bool escape(std::string& out) {
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at_++];
    if (c == '\n') return true;
    if (const std::size_t i = kLetters.find(c); i != std::string_view::npos) {
      out.push_back(kMeanings[i]);
      return true;
    }
    if (c >= '0' && c <= '7') {
      char32_t value = static_cast<char32_t>(c - '0');
      for (int i = 1; i < 3 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
        value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
      }
      append_utf8(value, out);
      return true;
    }
    if (c == 'x' || c == 'u' || c == 'U') return numeric(c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    if (c == 'N') return false;  // character names are not known here
    out.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x80) {
      out.push_back(c);
      return true;
    }
    // Python first writes such a character as an escape, and this backslash then escapes the
    // escape's.
    const CodePoint point = code_point_at(text_, at_ - 1);
    const auto value = static_cast<unsigned>(point.value);
    out += value < 0x100     ? fmt::format("x{:02x}", value)
           : value < 0x10000 ? fmt::format("u{:04x}", value)
                             : fmt::format("U{:08x}", value);
    at_ += point.size - 1;
    return true;
  }

  bool digits(int count, char32_t& value) {
    value = 0;
    for (int i = 0; i < count; ++i) {
      const int digit = at_ < text_.size() ? hex_digit(text_[at_]) : -1;
      if (digit < 0) return false;
      value = value << 4 | static_cast<char32_t>(digit);
      ++at_;
    }
    return true;
  }

  bool numeric(int count, std::string& out) {
    char32_t value = 0;
    if (!digits(count, value)) return false;
    if (is_high_surrogate(value) && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      char32_t low = 0;
      if (!digits(4, low) || !is_low_surrogate(low)) return false;
      value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
    }
    // Half of a surrogate pair is no character and has no UTF-8 form.
    if (value > 0x10ffff || is_high_surrogate(value) || is_low_surrogate(value)) return false;
    append_utf8(value, out);
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string Parser::unescape(const LexedToken& token) const {
  std::string out;
  if (!Unescaper(token.text).run(out)) {
    fail_at(token.line, "a string holds a malformed escape sequence");
  }
  return out;
}

}  // namespace bl::jinja
