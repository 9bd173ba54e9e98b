#include "grammar/decimal.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

Decimal normalized(bool negative, std::string whole, std::string fraction) {
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  if (whole.empty()) whole = "0";
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  Decimal result{.whole = std::move(whole), .fraction = std::move(fraction)};
  result.negative = negative && !result.is_zero();
  return result;
}

// Reads what fmt writes for a finite number: [-]digits[.digits][e±digits].
Decimal parse(const std::string& text) {
  const bool negative = text[0] == '-';
  const std::size_t exponent_at = std::min(text.find('e'), text.size());
  std::string mantissa = text.substr(negative ? 1 : 0, exponent_at - (negative ? 1 : 0));
  int exponent = 0;
  if (exponent_at < text.size()) exponent = std::atoi(text.c_str() + exponent_at + 1);
  const std::size_t dot = std::min(mantissa.find('.'), mantissa.size());
  std::string whole = mantissa.substr(0, dot);
  std::string fraction = dot < mantissa.size() ? mantissa.substr(dot + 1) : "";
  return shifted(normalized(negative, std::move(whole), std::move(fraction)), exponent);
}

std::strong_ordering compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() <=> b.whole.size();
  if (const int order = a.whole.compare(b.whole); order != 0) return order <=> 0;
  return a.fraction.compare(b.fraction) <=> 0;
}

}  // namespace

std::strong_ordering compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) {
    return a.negative ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  return a.negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

Decimal shifted(const Decimal& value, int places) {
  std::string whole = value.whole;
  std::string fraction = value.fraction;
  for (; places > 0; --places) {
    whole += fraction.empty() ? '0' : fraction.front();
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; places < 0; ++places) {
    fraction.insert(fraction.begin(), whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  return normalized(value.negative, std::move(whole), std::move(fraction));
}

int magnitude_of(const Decimal& value) {
  if (value.whole != "0") return static_cast<int>(value.whole.size()) - 1;
  return -static_cast<int>(value.fraction.find_first_not_of('0')) - 1;
}

Decimal decimal_of(const OrderedJson& number) {
  if (number.is_number_unsigned()) return parse(fmt::format("{}", number.get<std::uint64_t>()));
  if (number.is_number_integer()) return parse(fmt::format("{}", number.get<std::int64_t>()));
  const auto value = number.get<double>();
  if (!std::isfinite(value)) fail(ErrorCode::kInvalidArgument, "a number is too large");
  return parse(fmt::format("{}", value));
}

Decimal neighbour_of(const Decimal& bound, int towards) {
  const std::string text =
      fmt::format("{}{}.{}", bound.negative ? "-" : "", bound.whole, bound.fraction + "0");
  const double value = std::strtod(text.c_str(), nullptr);
  const double next = std::nextafter(value, towards * std::numeric_limits<double>::infinity());
  if (!std::isfinite(next)) return bound;
  return parse(fmt::format("{}", next));
}

}  // namespace bl
