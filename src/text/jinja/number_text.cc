#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "text/jinja/number.h"
#include "text/jinja/python_text.h"

namespace bl::jinja {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Returns the text with ASCII digits in place of digits of any script and without white space
// around it; nullopt if there is any other character outside ASCII.
std::optional<std::string> ascii_number(std::string_view text) {
  text = python_strip(text, StripSide::kBoth);
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    i += c.size;
    if (c.value < 0x80) {
      out.push_back(static_cast<char>(c.value));
    } else if (const int digit = decimal_value(c.value); digit >= 0) {
      out.push_back(static_cast<char>('0' + digit));
    } else {
      return std::nullopt;
    }
  }
  return out;
}

// Removes underscores; returns false if one does not stand between two digits.
bool remove_underscores(std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return false;
    }
  }
  text = out;
  return true;
}

// Returns the length of a number at the start, such as `12`, `12.`, `.5` or `1.5e-3`; 0 if there is
// none.
std::size_t decimal_length(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t begin = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - begin;
  };
  std::size_t count = digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    count += digits();
  }
  if (count == 0) return 0;
  if (i < text.size() && lower(text[i]) == 'e') {
    const std::size_t mark = i++;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) i = mark;
  }
  return i;
}

}  // namespace

double parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc::result_out_of_range) return value;
  // The number is too large or too small; the exponent's sign, or the place of the first digit,
  // shows which.
  const std::size_t exponent = text.find_first_of("eE");
  const bool small = exponent != std::string_view::npos
                         ? text.find('-', exponent) != std::string_view::npos
                         : text.find_first_of("123456789") > text.find('.');
  return small ? 0.0 : std::numeric_limits<double>::infinity();
}

std::optional<double> parse_float(std::string_view text) {
  std::optional<std::string> number = ascii_number(text);
  if (!number || !remove_underscores(*number) || number->empty()) return std::nullopt;
  std::string_view rest = *number;
  const bool negative = rest[0] == '-';
  if (negative || rest[0] == '+') rest.remove_prefix(1);
  std::string word;
  for (const char c : rest) word.push_back(lower(c));
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (word == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (decimal_length(rest) == rest.size() && !rest.empty()) {
    value = parse_double(rest);
  } else {
    return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<Value> parse_int(Runtime& rt, std::string_view text, int base) {
  const std::optional<std::string> number = ascii_number(text);
  if (!number || number->empty()) return std::nullopt;
  std::string_view rest = *number;
  const bool negative = rest[0] == '-';
  if (negative || rest[0] == '+') rest.remove_prefix(1);
  bool prefixed = false;
  if (rest.size() > 1 && rest[0] == '0') {
    const char mark = lower(rest[1]);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == 0 || base == marked)) {
      base = marked;
      rest.remove_prefix(2);
      prefixed = true;
    }
  }
  const bool by_prefix = base == 0;
  if (base == 0) base = 10;
  std::string digits;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == '_') {
      const bool after_something = i > 0 ? rest[i - 1] != '_' : prefixed;
      if (!after_something || i + 1 == rest.size()) return std::nullopt;
      continue;
    }
    const char c = lower(rest[i]);
    const int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    digits.push_back(c);
  }
  if (digits.empty() || digits.size() > kMaxIntDigits) return std::nullopt;
  // Without a base, leading zeros are allowed only for zero.
  if (by_prefix && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
    return std::nullopt;
  }
  rt.scan(digits.size() * digits.size());
  BigNumber value = BigNumber::parse(digits, base);
  value.negative = negative && !value.limbs.empty();
  return value.to_value(rt.arena);
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::scientific);
  // The form is d.ddde+XX.
  std::string_view text(buffer.data(), static_cast<std::size_t>(result.ptr - buffer.data()));
  std::string out;
  if (text[0] == '-') {
    out.push_back('-');
    text.remove_prefix(1);
  }
  const std::size_t mark = text.find('e');
  std::string digits(1, text[0]);
  if (mark > 1) digits += text.substr(2, mark - 2);
  int exponent = 0;
  std::from_chars(text.data() + mark + 2, text.data() + text.size(), exponent);
  if (text[mark + 1] == '-') exponent = -exponent;
  const std::size_t count = digits.size();
  if (exponent < -4 || exponent >= 16) {
    out.push_back(digits[0]);
    if (count > 1) out.append(".").append(digits, 1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) {
    return out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  }
  const auto whole = static_cast<std::size_t>(exponent + 1);
  if (digits.size() <= whole) {
    return out.append(digits).append(whole - digits.size(), '0').append(".0");
  }
  return out.append(digits, 0, whole).append(".").append(digits, whole);
}

std::string integer_text(Runtime& rt, const Value& value, int base) {
  if (value.is_int64() && base == 10) return fmt::format_int(value.integer).str();
  const BigNumber number = BigNumber::from(value);
  const bool is_power_of_two = (base & (base - 1)) == 0;
  if (!is_power_of_two && number.bits() > kMaxIntDigits * 10 / 3) {
    rt.fail("an int has more than {} digits", kMaxIntDigits);
  }
  rt.scan(number.limbs.size() * number.limbs.size() * 64);
  return number.to_string(base);
}

}  // namespace bl::jinja
