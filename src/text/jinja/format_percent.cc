#include <cmath>

#include "base/utf8.h"
#include "text/jinja/dict.h"
#include "text/jinja/format.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

struct Conversion {
  bool left = false, plus = false, space = false, alternate = false, zero = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, const Value& text, const Value& args)
      : rt_(rt), text_(text.str()), markup_(text.is_markup()), args_(args) {}

  Value run() {
    rt_.scan(text_.size());
    while (at_ < text_.size()) {
      const std::size_t mark = text_.find('%', at_);
      out_ += text_.substr(at_, mark - at_);
      if (mark == std::string_view::npos) break;
      at_ = mark + 1;
      convert();
      rt_.check_size(out_.size());
      rt_.step();
    }
    const bool all_used = !args_.is(Kind::kTuple) || next_ == args_.size;
    const bool may_ignore = next_ > 0 || args_.is(Kind::kDict) || args_.is(Kind::kList) ||
                            args_.is(Kind::kRange) || args_.is_undefined();
    if (!all_used || (!args_.is(Kind::kTuple) && !may_ignore)) {
      rt_.fail("not all arguments converted during string formatting");
    }
    return rt_.string(out_).as_markup(markup_);
  }

 private:
  char peek() {
    if (at_ >= text_.size()) rt_.fail("incomplete format");
    return text_[at_];
  }

  Value next_argument() {
    if (args_.is(Kind::kTuple) ? next_ >= args_.size : next_ > 0) {
      rt_.fail("not enough arguments for format string");
    }
    ++next_;
    return args_.is(Kind::kTuple) ? args_.items[next_ - 1] : args_;
  }

  Value named_argument() {
    const std::size_t begin = ++at_;
    for (int open = 1;; ++at_) {
      if (at_ >= text_.size()) rt_.fail("incomplete format key");
      if (text_[at_] == '(') ++open;
      if (text_[at_] == ')' && --open == 0) break;
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    ++at_;
    if (!args_.is(Kind::kDict)) rt_.fail("format requires a mapping");
    const Value* found = find(*args_.dict, name);
    if (found == nullptr) rt_.fail("'{}'", name);
    return *found;
  }

  int number() {
    if (peek() == '*') {
      ++at_;
      const std::int64_t value = to_index(rt_, next_argument(), "* in a format");
      if (value < -kMaxFormatWidth || value > kMaxFormatWidth) too_wide();
      return static_cast<int>(value);
    }
    int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (text_[at_++] - '0');
      if (value > kMaxFormatWidth) too_wide();
    }
    return value;
  }

  [[noreturn]] void too_wide() {
    rt_.limit("a format asks for more than {} characters", kMaxFormatWidth);
  }

  void convert() {
    Conversion c;
    Value argument;
    if (peek() == '(') argument = named_argument();
    for (;; ++at_) {
      const char flag = peek();
      if (flag == '-') {
        c.left = true;
      } else if (flag == '+') {
        c.plus = true;
      } else if (flag == ' ') {
        c.space = true;
      } else if (flag == '#') {
        c.alternate = true;
      } else if (flag == '0') {
        c.zero = true;
      } else {
        break;
      }
    }
    c.width = number();
    if (c.width < 0) {
      c.left = true;
      c.width = -c.width;
    }
    if (peek() == '.') {
      ++at_;
      c.precision = std::max(0, number());
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    c.type = peek();
    ++at_;
    if (c.type == '%') {
      out_.push_back('%');
      return;
    }
    if (argument.missing()) {
      argument = next_argument();
    } else {
      ++next_;
    }
    rt_.scan(static_cast<std::size_t>(c.width + std::max(c.precision, 0)) * 8);
    write(c, argument);
  }

  void write(const Conversion& c, const Value& argument) {
    switch (c.type) {
      case 's':
      case 'r':
      case 'a':
        return write_text(c, argument);
      case 'c':
        return write_character(c, argument);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return write_integer(c, argument);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return write_float(c, argument);
      default:
        rt_.fail("unsupported format character '{}' (0x{:x})", c.type,
                 static_cast<unsigned>(static_cast<unsigned char>(c.type)));
    }
  }

  void write_text(const Conversion& c, const Value& argument) {
    std::string text;
    if (markup_ && c.type == 's') {
      text = escape_html(rt_, argument).str();
    } else if (c.type == 's') {
      append_str(rt_, argument, text);
    } else {
      append_repr(rt_, argument, text);
    }
    std::string_view shown = text;
    if (c.precision >= 0) shown = code_points(shown, 0, static_cast<std::size_t>(c.precision));
    pad(c, "", shown, false);
  }

  void write_character(const Conversion& c, const Value& argument) {
    std::string text;
    if (argument.is_string()) {
      if (length_of(argument) != 1) rt_.fail("%c requires int or char");
      text = argument.str();
    } else {
      const std::int64_t code = to_index(rt_, argument, "%c");
      if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        rt_.fail("%c arg not in range(0x110000)");
      }
      append_utf8(static_cast<char32_t>(code), text);
    }
    pad(c, "", text, false);
  }

  std::string sign(const Conversion& c, bool negative) const {
    return negative ? "-" : c.plus ? "+" : c.space ? " " : "";
  }

  void write_integer(const Conversion& c, const Value& argument) {
    const bool decimal = c.type == 'd' || c.type == 'i' || c.type == 'u';
    Value number = argument;
    if (decimal && argument.is(Kind::kFloat)) {
      if (!std::isfinite(argument.number)) rt_.fail("cannot convert float to integer");
      number = truncated(rt_, argument.number);
    }
    if (number.is_undefined()) fail_undefined(rt_, number);
    if (!number.is_integer()) {
      rt_.fail("%{} format: a{} is required, not {}", c.type,
               decimal ? " real number" : "n integer", type_name(argument));
    }
    const int base = decimal ? 10 : c.type == 'o' ? 8 : 16;
    std::string digits = integer_text(rt_, number, base);
    std::string prefix = sign(c, digits[0] == '-');
    if (digits[0] == '-') digits.erase(0, 1);
    if (c.precision > static_cast<int>(digits.size())) {
      digits.insert(0, static_cast<std::size_t>(c.precision) - digits.size(), '0');
    }
    if (c.type == 'X') {
      for (char& digit : digits) digit = digit >= 'a' ? static_cast<char>(digit - 32) : digit;
    }
    if (c.alternate && !decimal) {
      prefix += '0';
      prefix += c.type;
    }
    pad(c, prefix, digits, c.zero);
  }

  void write_float(const Conversion& c, const Value& argument) {
    if (argument.is_undefined()) fail_undefined(rt_, argument);
    if (!argument.is_number()) {
      rt_.fail("must be real number, not {}", type_name(argument));
    }
    const double value = to_double(rt_, argument);
    const bool negative = std::signbit(value) && !std::isnan(value);
    const std::string digits =
        float_digits(std::fabs(value), {c.type, c.precision < 0 ? 6 : c.precision, c.alternate});
    pad(c, sign(c, negative), digits, c.zero && std::isfinite(value));
  }

  void pad(const Conversion& c, std::string_view prefix, std::string_view body, bool zeros) {
    const std::size_t length = prefix.size() + count_code_points(body);
    const auto width = static_cast<std::size_t>(c.width);
    const std::size_t missing = width > length ? width - length : 0;
    if (!c.left && !zeros) out_.append(missing, ' ');
    out_ += prefix;
    if (!c.left && zeros) out_.append(missing, '0');
    out_ += body;
    if (c.left) out_.append(missing, ' ');
  }

  Runtime& rt_;
  std::string_view text_;
  bool markup_;
  Value args_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  std::string out_;
};

}  // namespace

Value format_percent(Runtime& rt, const Value& text, const Value& args) {
  return PercentFormatter(rt, text, args).run();
}

}  // namespace bl::jinja
