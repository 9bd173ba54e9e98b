#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/iteration.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"

namespace bl::jinja {
namespace {

void need_number(Runtime& rt, const Value& value, const char* what) {
  if (value.is_undefined()) fail_undefined(rt, value);
  if (!value.is_number()) rt.fail("{} needs a number, not '{}'", what, type_name(value));
}

Value filter_abs(Runtime& rt, const Arguments& args) {
  need_number(rt, args[0], "abs");
  if (args[0].is(Kind::kFloat)) return Value::of_float(std::fabs(args[0].number));
  const bool negative = compare_numbers(args[0], Value::of_int(0)) < 0;
  return negative ? negated(rt, args[0]) : unary(rt, UnaryOp::kPlus, args[0]);
}

// int(value, default=0, base=10)
Value filter_int(Runtime& rt, const Arguments& args) {
  const Value& value = args[0];
  const Value otherwise = args.has(1) ? args[1] : Value::of_int(0);
  if (value.is_undefined()) fail_undefined(rt, value);
  if (value.is_integer()) return unary(rt, UnaryOp::kPlus, value);
  if (value.is(Kind::kFloat)) {
    if (std::isinf(value.number)) rt.fail("cannot convert float infinity to integer");
    return std::isnan(value.number) ? otherwise : truncated(rt, value.number);
  }
  if (!value.is_string()) return otherwise;
  const std::int64_t base = args.has(2) ? to_index(rt, args[2], "base") : 10;
  const bool base_fits = base == 0 || (base >= 2 && base <= 36);
  rt.scan(value.size);
  if (base_fits) {
    if (const auto number = parse_int(rt, value.str(), static_cast<int>(base))) return *number;
  }
  const auto number = parse_float(value.str());
  return number && std::isfinite(*number) ? truncated(rt, *number) : otherwise;
}

// float(value, default=0.0)
Value filter_float(Runtime& rt, const Arguments& args) {
  const Value& value = args[0];
  if (value.is_undefined()) fail_undefined(rt, value);
  if (value.is_number()) return Value::of_float(to_double(rt, value));
  if (value.is_string()) {
    rt.scan(value.size);
    if (const auto number = parse_float(value.str())) return Value::of_float(*number);
  }
  return args.has(1) ? args[1] : Value::of_float(0.0);
}

Value power_of_ten(Runtime& rt, std::int64_t exponent) {
  return arithmetic(rt, BinaryOp::kPow, Value::of_int(10), Value::of_int(exponent));
}

// Rounds an int to the nearest multiple of 10^-digits, and ties to an even multiple.
Value round_int(Runtime& rt, const Value& value, std::int64_t digits) {
  if (digits >= 0) return unary(rt, UnaryOp::kPlus, value);
  if (digits < -400) return Value::of_int(0);
  const BigNumber unit = BigNumber::from(power_of_ten(rt, -digits));
  Division division = floor_divide(BigNumber::from(value), unit);
  const int half = compare(division.remainder + division.remainder, unit);
  const bool odd = !division.quotient.limbs.empty() && (division.quotient.limbs[0] & 1) != 0;
  if (half > 0 || (half == 0 && odd)) {
    division.quotient = division.quotient + BigNumber::from(std::int64_t{1});
  }
  return (division.quotient * unit).to_value(rt.arena);
}

double round_float(double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) {
    // The exact decimal value decides, and ties go to even, as in correct printing.
    const std::string text = float_digits(std::fabs(value), {'f', static_cast<int>(digits), false});
    return std::copysign(parse_double(text), value);
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / unit) * unit;
}

// round(value, precision=0, method="common")
Value filter_round(Runtime& rt, const Arguments& args) {
  const std::string_view method = !args.has(2)          ? "common"
                                  : args[2].is_string() ? args[2].str()
                                                        : std::string_view();
  if (method != "common" && method != "ceil" && method != "floor") {
    rt.fail("method must be common, ceil or floor");
  }
  need_number(rt, args[0], "round");
  const bool no_digits = args.has(1) && args[1].is_none();
  const std::int64_t digits = args.has_value(1) ? to_index(rt, args[1], "precision") : 0;
  if (method == "common") {
    if (args[0].is_integer()) return round_int(rt, args[0], digits);
    const double rounded = round_float(args[0].number, digits);
    if (!no_digits) return Value::of_float(rounded);
    if (!std::isfinite(rounded)) rt.fail("cannot convert float to integer");
    return truncated(rt, rounded);
  }
  const Value unit = power_of_ten(rt, digits);
  const Value scaled = arithmetic(rt, BinaryOp::kMul, args[0], unit);
  Value whole = scaled;
  if (scaled.is(Kind::kFloat)) {
    if (!std::isfinite(scaled.number)) rt.fail("cannot convert float to integer");
    whole = truncated(rt, method == "ceil" ? std::ceil(scaled.number) : std::floor(scaled.number));
  }
  return arithmetic(rt, BinaryOp::kDiv, whole, unit);
}

// filesizeformat(value, binary=False)
Value filter_filesizeformat(Runtime& rt, const Arguments& args) {
  if (args[0].is_undefined()) fail_undefined(rt, args[0]);
  double bytes = 0;
  if (args[0].is_string()) {
    const auto number = parse_float(args[0].str());
    if (!number) rt.fail("could not convert string to float: '{}'", args[0].str());
    bytes = *number;
  } else {
    need_number(rt, args[0], "filesizeformat");
    bytes = to_double(rt, args[0]);
  }
  const bool binary = args.has(1) && truthy(args[1]);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::string("1 Byte");
  if (bytes < base) {
    if (!std::isfinite(bytes)) rt.fail("cannot convert float to integer");
    return rt.string(integer_text(rt, truncated(rt, bytes)) + " Bytes");
  }
  constexpr std::string_view kLetters = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  while (i + 1 < kLetters.size() && bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  const char letter = binary && i == 0 ? 'K' : kLetters[i];
  return rt.string(fmt::format("{} {}{}", float_digits(bytes / unit, {'f', 1, false}), letter,
                               binary ? "iB" : "B"));
}

constexpr Builtin kNumberFilters[] = {
    {"int", filter_int, 1, {"value", "default", "base"}},
    {"float", filter_float, 1, {"value", "default"}},
    {"round", filter_round, 1, {"value", "precision", "method"}},
    {"abs", filter_abs, 1, {"x"}, Builtin::Style::kPositional},
    {"filesizeformat", filter_filesizeformat, 1, {"value", "binary"}},
};

}  // namespace

std::span<const Builtin> number_filters() { return kNumberFilters; }

}  // namespace bl::jinja
