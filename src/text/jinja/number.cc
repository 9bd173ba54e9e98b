#include "text/jinja/number.h"

#include <cmath>
#include <limits>

namespace bl::jinja {
namespace {

Value checked(Runtime& rt, const BigNumber& number) {
  if (number.bits() > kMaxIntBits) rt.limit("an integer has more than {} bits", kMaxIntBits);
  rt.scan(number.limbs.size() * number.limbs.size());
  return number.to_value(rt.arena);
}

Value int_power(Runtime& rt, const Value& a, const Value& b) {
  const bool negative = b.is(Kind::kBigInt) ? b.big->negative : b.integer < 0;
  const BigNumber base = BigNumber::from(a);
  if (negative) {
    if (base.limbs.empty()) rt.fail("0 cannot be raised to a negative power");
    return Value::of_float(std::pow(base.to_double(), BigNumber::from(b).to_double()));
  }
  if (base.bits() <= 1) {  // 0, 1 and -1
    const bool odd = b.is(Kind::kBigInt) ? (b.big->limbs[0] & 1) != 0 : (b.integer & 1) != 0;
    const bool zero_exponent = !b.is(Kind::kBigInt) && b.integer == 0;
    if (zero_exponent || (base.negative && !odd)) return Value::of_int(1);
    return base.to_value(rt.arena);
  }
  if (b.is(Kind::kBigInt) || static_cast<std::size_t>(b.integer) > kMaxIntBits ||
      (base.bits() - 1) * static_cast<std::size_t>(b.integer) > kMaxIntBits) {
    rt.limit("an integer has more than {} bits", kMaxIntBits);
  }
  BigNumber result = BigNumber::from(std::int64_t{1});
  for (int bit = 63 - __builtin_clzll(static_cast<std::uint64_t>(b.integer) | 1); bit >= 0; --bit) {
    result = result * result;
    if ((b.integer >> bit & 1) != 0) result = result * base;
    rt.scan(result.limbs.size() * result.limbs.size());
  }
  return checked(rt, result);
}

Value true_divide(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_int64() && b.is_int64()) {
    if (b.integer == 0) rt.fail("division by zero");
    const long double quotient =
        static_cast<long double>(a.integer) / static_cast<long double>(b.integer);
    return Value::of_float(static_cast<double>(quotient));
  }
  BigNumber dividend = BigNumber::from(a);
  BigNumber divisor = BigNumber::from(b);
  if (divisor.limbs.empty()) rt.fail("division by zero");
  // The operands are scaled so that the integer quotient has more bits than a double; the remainder
  // makes its last bit sticky.
  const auto scale =
      static_cast<std::int64_t>(divisor.bits()) - static_cast<std::int64_t>(dividend.bits()) + 66;
  const auto shifted = [](const BigNumber& number, std::int64_t bits) {
    BigNumber out = number;
    out.limbs.insert(out.limbs.begin(), static_cast<std::size_t>(bits / 32), 0);
    return out * BigNumber::from(std::int64_t{1} << (bits % 32));
  };
  if (scale > 0) {
    dividend = shifted(dividend, scale);
  } else {
    divisor = shifted(divisor, -scale);
  }
  const bool negative = dividend.negative != divisor.negative;
  dividend.negative = divisor.negative = false;
  Division division = floor_divide(dividend, divisor);
  if (!division.remainder.limbs.empty() && !division.quotient.limbs.empty()) {
    division.quotient.limbs[0] |= 1;
  }
  const double value = std::ldexp(division.quotient.to_double(), static_cast<int>(-scale));
  if (std::isinf(value)) rt.fail("the result of the division is too large for a float");
  return Value::of_float(negative ? -value : value);
}

Value big_arithmetic(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  const BigNumber left = BigNumber::from(a);
  const BigNumber right = BigNumber::from(b);
  switch (op) {
    case BinaryOp::kAdd:
      return checked(rt, left + right);
    case BinaryOp::kSub:
      return checked(rt, left - right);
    case BinaryOp::kMul:
      return checked(rt, left * right);
    default:
      break;
  }
  if (right.limbs.empty()) rt.fail("integer division or modulo by zero");
  const Division division = floor_divide(left, right);
  return checked(rt, op == BinaryOp::kMod ? division.remainder : division.quotient);
}

Value int_arithmetic(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kDiv) return true_divide(rt, a, b);
  if (op == BinaryOp::kPow) return int_power(rt, a, b);
  if (!a.is_int64() || !b.is_int64()) return big_arithmetic(rt, op, a, b);
  const std::int64_t x = a.integer;
  const std::int64_t y = b.integer;
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(x, y, &result);
      break;
    case BinaryOp::kSub:
      overflow = __builtin_sub_overflow(x, y, &result);
      break;
    case BinaryOp::kMul:
      overflow = __builtin_mul_overflow(x, y, &result);
      break;
    default:  // kFloorDiv, kMod
      if (y == 0) rt.fail("integer division or modulo by zero");
      if (y == -1) {  // the only quotient that may not fit
        if (op == BinaryOp::kMod) return Value::of_int(0);
        overflow = __builtin_sub_overflow(std::int64_t{0}, x, &result);
        break;
      }
      result = op == BinaryOp::kMod ? x % y : x / y;
      if (x % y != 0 && (x < 0) != (y < 0)) result += op == BinaryOp::kMod ? y : -1;
  }
  return overflow ? big_arithmetic(rt, op, a, b) : Value::of_int(result);
}

// Returns the floored quotient or the remainder of a float division, as CPython's float_divmod
// does.
Value float_division(Runtime& rt, BinaryOp op, double x, double y) {
  if (y == 0.0) rt.fail("float division or modulo by zero");
  double rest = std::fmod(x, y);
  double quotient = (x - rest) / y;
  if (rest != 0.0) {
    if ((y < 0) != (rest < 0)) {
      rest += y;
      quotient -= 1.0;
    }
  } else {
    rest = std::copysign(0.0, y);
  }
  if (op == BinaryOp::kMod) return Value::of_float(rest);
  if (quotient == 0.0) return Value::of_float(std::copysign(0.0, x / y));
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1.0;
  return Value::of_float(floor);
}

Value float_power(Runtime& rt, double x, double y) {
  if (x == 0.0 && y < 0) rt.fail("0.0 cannot be raised to a negative power");
  if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y)) {
    rt.fail("a negative number to a fractional power is complex, which templates cannot use");
  }
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) {
    rt.fail("the result of ** is too large for a float");
  }
  return Value::of_float(result);
}

int sign_of(const Value& value) {
  if (value.is(Kind::kBigInt)) return value.big->negative ? -1 : 1;
  return value.integer < 0 ? -1 : value.integer > 0 ? 1 : 0;
}

std::partial_ordering compare_with_float(const Value& integer, double number) {
  if (std::isnan(number)) return std::partial_ordering::unordered;
  if (std::isinf(number)) {
    return number > 0 ? std::partial_ordering::less : std::partial_ordering::greater;
  }
  if (integer.is_int64() && std::fabs(number) < 9.0e15) {
    // In this range the float's whole part is exact as an int64, and its fraction decides ties.
    const double whole = std::floor(number);
    const auto floor = static_cast<std::int64_t>(whole);
    if (integer.integer != floor) {
      return integer.integer < floor ? std::partial_ordering::less : std::partial_ordering::greater;
    }
    return number > whole ? std::partial_ordering::less : std::partial_ordering::equivalent;
  }
  // A float this large has no fraction; a small one beside a kBigInt is decided by its whole part.
  const int order = compare(BigNumber::from(integer), BigNumber::from(number));
  return order <=> 0;
}

}  // namespace

Value arithmetic(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return int_arithmetic(rt, op, a, b);
  const double x = to_double(rt, a);
  const double y = to_double(rt, b);
  switch (op) {
    case BinaryOp::kAdd:
      return Value::of_float(x + y);
    case BinaryOp::kSub:
      return Value::of_float(x - y);
    case BinaryOp::kMul:
      return Value::of_float(x * y);
    case BinaryOp::kDiv:
      if (y == 0.0) rt.fail("float division by zero");
      return Value::of_float(x / y);
    case BinaryOp::kPow:
      return float_power(rt, x, y);
    default:
      return float_division(rt, op, x, y);
  }
}

Value negated(Runtime& rt, const Value& value) {
  if (value.is(Kind::kFloat)) return Value::of_float(-value.number);
  return int_arithmetic(rt, BinaryOp::kSub, Value::of_int(0), value);
}

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) return a.number <=> b.number;
  if (b.is(Kind::kFloat)) return compare_with_float(a, b.number);
  if (a.is(Kind::kFloat)) return 0 <=> compare_with_float(b, a.number);
  if (a.is_int64() && b.is_int64()) return a.integer <=> b.integer;
  if (sign_of(a) != sign_of(b)) return sign_of(a) <=> sign_of(b);
  return compare(BigNumber::from(a), BigNumber::from(b)) <=> 0;
}

double to_double(Runtime& rt, const Value& value) {
  if (value.is(Kind::kFloat)) return value.number;
  if (value.is_int64()) return static_cast<double>(value.integer);
  const double number = BigNumber::from(value).to_double();
  if (std::isinf(number)) rt.fail("an int is too large to become a float");
  return number;
}

Value truncated(Runtime& rt, double value) {
  if (std::fabs(value) < 9.2e18) return Value::of_int(static_cast<std::int64_t>(value));
  return BigNumber::from(value).to_value(rt.arena);
}

}  // namespace bl::jinja
