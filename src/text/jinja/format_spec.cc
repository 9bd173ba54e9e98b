// format(value, spec) for str, int and float.

#include <cmath>
#include <cstdio>
#include <optional>

#include "base/utf8.h"
#include "text/jinja/format.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

struct Spec {
  std::string_view fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  char grouping = '\0';
  int width = 0;
  int precision = -1;
  char type = '\0';
};

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

class SpecParser {
 public:
  SpecParser(Runtime& rt, std::string_view text) : rt_(rt), rest_(text) {}

  Spec parse() {
    Spec spec;
    bool explicit_fill = false;
    if (!rest_.empty()) {
      const std::size_t first = utf8_size(rest_[0]);
      if (rest_.size() > first && is_align(rest_[first])) {
        spec.fill = rest_.substr(0, first);
        spec.align = rest_[first];
        explicit_fill = true;
        rest_.remove_prefix(first + 1);
      } else if (is_align(rest_[0])) {
        spec.align = take();
      }
    }
    if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = take();
    if (peek() == 'z') take();
    if (peek() == '#') {
      spec.alternate = true;
      take();
    }
    if (peek() == '0') {
      take();
      if (!explicit_fill) spec.fill = "0";
      if (spec.align == '\0') spec.align = '=';
    }
    spec.width = number(0);
    if (peek() == ',' || peek() == '_') spec.grouping = take();
    if (peek() == '.') {
      take();
      spec.precision = number(-1);
      if (spec.precision < 0) rt_.fail("Format specifier missing precision");
    }
    if (!rest_.empty()) spec.type = take();
    if (!rest_.empty()) rt_.fail("Invalid format specifier");
    return spec;
  }

 private:
  char peek() const { return rest_.empty() ? '\0' : rest_[0]; }
  char take() {
    const char c = rest_[0];
    rest_.remove_prefix(1);
    return c;
  }
  int number(int absent) {
    if (peek() < '0' || peek() > '9') return absent;
    int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (take() - '0');
      if (value > kMaxFormatWidth)
        rt_.limit("a format asks for more than {} characters", kMaxFormatWidth);
    }
    return value;
  }

  Runtime& rt_;
  std::string_view rest_;
};

void repeat_fill(std::string_view fill, std::size_t count, std::string& out) {
  for (std::size_t i = 0; i < count; ++i) out += fill;
}

// Pads to the width. `prefix` (sign and 0x) stays in front of the fill when `align` is '='.
std::string aligned(const Spec& spec, char align, std::string_view prefix, std::string_view body) {
  const std::size_t length = count_code_points(body) + prefix.size();
  const auto width = static_cast<std::size_t>(spec.width);
  const std::size_t missing = width > length ? width - length : 0;
  std::string out;
  if (align == '=') {
    out += prefix;
    repeat_fill(spec.fill, missing, out);
    out += body;
    return out;
  }
  const std::size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  repeat_fill(spec.fill, before, out);
  out += prefix;
  out += body;
  repeat_fill(spec.fill, missing - before, out);
  return out;
}

// Puts separators into the whole part of a number. Leading zeros count to it if '0' is the fill.
// `taken` is the length of the prefix, `every` the distance between separators.
std::string grouped(const Spec& spec, std::string_view digits, std::size_t every,
                    std::size_t taken) {
  std::size_t whole = 0;
  const bool hexadecimal = every == 4;
  while (whole < digits.size() &&
         ((digits[whole] >= '0' && digits[whole] <= '9') ||
          (hexadecimal && ((digits[whole] | 0x20) >= 'a' && (digits[whole] | 0x20) <= 'f')))) {
    ++whole;
  }
  std::string padded(digits.substr(0, whole));
  if (spec.align == '=' && spec.fill == "0") {
    const auto width = static_cast<std::size_t>(spec.width);
    const std::size_t other = taken + digits.size() - whole;
    while (padded.size() + (padded.size() - 1) / every + other < width) padded.insert(0, 1, '0');
  }
  std::string out;
  for (std::size_t i = 0; i < padded.size(); ++i) {
    if (i > 0 && (padded.size() - i) % every == 0) out.push_back(spec.grouping);
    out.push_back(padded[i]);
  }
  return out + std::string(digits.substr(whole));
}

std::string sign_text(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string format_float(Runtime& rt, double value, const Spec& spec) {
  if (std::string_view("eEfFgG%n").find(spec.type) == std::string_view::npos && spec.type != '\0') {
    rt.fail("Unknown format code '{}' for object of type 'float'", spec.type);
  }
  const bool negative = std::signbit(value) && !std::isnan(value);
  double magnitude = std::fabs(value);
  std::string digits;
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  if (spec.type == '%') {
    digits = float_digits(magnitude * 100, {'f', precision, spec.alternate}) + "%";
  } else if (spec.type == '\0' && spec.precision < 0) {
    digits = float_text(magnitude);
  } else if (spec.type == '\0') {
    // Like 'g', but with a digit after the point, and in fixed notation up to the precision.
    digits = float_digits(magnitude, {'g', precision == 0 ? 1 : precision, false});
    if (digits.find_first_of(".en") == std::string::npos) {
      if (static_cast<int>(digits.size()) < std::max(precision, 1)) {
        digits += ".0";
      } else {
        digits = float_digits(magnitude, {'e', std::max(precision, 1) - 1, false});
        // Trailing zeros of the mantissa are dropped, as 'g' does.
        const std::size_t mark = digits.find('e');
        std::string mantissa = digits.substr(0, mark);
        if (mantissa.find('.') != std::string::npos) {
          mantissa.erase(mantissa.find_last_not_of('0') + 1);
          if (mantissa.back() == '.') mantissa.pop_back();
        }
        digits = mantissa + digits.substr(mark);
      }
    }
  } else {
    const char type = spec.type == 'n' ? 'g' : spec.type;
    digits = float_digits(magnitude, {type, precision, spec.alternate});
  }
  const std::string prefix = sign_text(spec, negative);
  if (spec.grouping != '\0') digits = grouped(spec, digits, 3, prefix.size());
  return aligned(spec, spec.align == '\0' ? '>' : spec.align, prefix, digits);
}

std::string format_int(Runtime& rt, const Value& value, const Spec& spec) {
  if (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos) {
    return format_float(rt, to_double(rt, value), spec);
  }
  if (spec.precision >= 0) rt.fail("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    const std::int64_t code = to_index(rt, value, "a character code");
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      rt.fail("%c arg not in range(0x110000)");
    }
    std::string text;
    append_utf8(static_cast<char32_t>(code), text);
    return aligned(spec, spec.align == '\0' ? '<' : spec.align, "", text);
  }
  int base = 10;
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
      break;
    case 'b':
      base = 2;
      break;
    case 'o':
      base = 8;
      break;
    case 'x':
    case 'X':
      base = 16;
      break;
    default:
      rt.fail("Unknown format code '{}' for object of type 'int'", spec.type);
  }
  std::string digits = integer_text(rt, value, base);
  const bool negative = digits[0] == '-';
  if (negative) digits.erase(0, 1);
  std::string prefix = sign_text(spec, negative);
  if (spec.alternate && base != 10) {
    prefix += '0';
    prefix += spec.type;
  }
  if (spec.type == 'X') {
    for (char& c : digits) c = c >= 'a' && c <= 'f' ? static_cast<char>(c - 32) : c;
  }
  if (spec.grouping != '\0') {
    if (spec.grouping == ',' && base != 10) rt.fail("Cannot specify ',' with '{}'.", spec.type);
    digits = grouped(spec, digits, base == 10 ? 3 : 4, prefix.size());
  }
  return aligned(spec, spec.align == '\0' ? '>' : spec.align, prefix, digits);
}

std::string format_text(Runtime& rt, const Value& value, const Spec& spec) {
  if (spec.type != '\0' && spec.type != 's') {
    rt.fail("Unknown format code '{}' for object of type 'str'", spec.type);
  }
  if (spec.sign != '-' || spec.grouping != '\0' || spec.alternate) {
    rt.fail("Sign, '#' or grouping not allowed in string format specifier");
  }
  // A leading 0 means '=' for numbers; for text it means zeros on the right.
  const bool zero_fill = spec.align == '=' && spec.fill == "0";
  if (spec.align == '=' && !zero_fill)
    rt.fail("'=' alignment not allowed in string format specifier");
  std::string_view text = value.str();
  if (spec.precision >= 0) text = code_points(text, 0, static_cast<std::size_t>(spec.precision));
  return aligned(spec, spec.align == '\0' || zero_fill ? '<' : spec.align, "", text);
}

}  // namespace

std::string float_digits(double value, const FloatStyle& style) {
  const bool upper = style.type == 'E' || style.type == 'F' || style.type == 'G';
  if (std::isnan(value)) return upper ? "NAN" : "nan";
  if (std::isinf(value)) return upper ? (value < 0 ? "-INF" : "INF") : (value < 0 ? "-inf" : "inf");
  const int precision = (style.type | 0x20) == 'g' && style.precision == 0 ? 1 : style.precision;
  // fmt follows Python's rules for e, f and g.
  std::string text = style.alternate ? "{:#.{}" : "{:.{}";
  text.push_back(style.type);
  text.push_back('}');
  return fmt::format(fmt::runtime(text), value, precision);
}

std::string format_value(Runtime& rt, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) {
    std::string out;
    append_str(rt, value, out);
    return out;
  }
  rt.scan(spec_text.size());
  const Spec spec = SpecParser(rt, spec_text).parse();
  rt.scan(static_cast<std::size_t>(spec.width + std::max(spec.precision, 0)) * 8);
  switch (value.kind) {
    case Kind::kString:
      return format_text(rt, value, spec);
    case Kind::kBool:
      // A bool is formatted as an int if there is a spec.
    case Kind::kInt:
    case Kind::kBigInt:
      return format_int(rt, value, spec);
    case Kind::kFloat:
      return format_float(rt, value.number, spec);
    default:
      if (value.is_undefined()) fail_undefined(rt, value);
      rt.fail("unsupported format string passed to {}.__format__", type_name(value));
  }
}

}  // namespace bl::jinja
