#pragma once
// Integers beyond 64 bits, as Python's int has them. Schoolbook algorithms: templates that meet
// such numbers at all meet a few digits; the bound on their size keeps the rest harmless.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/arena.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// How a kBigInt is stored: magnitude in limbs of 32 bits, lowest first.
class BigInt {
 public:
  bool negative = false;
  std::span<const std::uint32_t> limbs;
};

// A number being computed. Always trimmed; zero has no limbs and is not negative.
struct BigNumber {
  bool negative = false;
  std::vector<std::uint32_t> limbs;

  static BigNumber from(std::int64_t value);
  // Any value for which Value::is_integer().
  static BigNumber from(const Value& value);
  // Rounded toward zero; `value` is finite.
  static BigNumber from(double value);
  // Digits of base 2 to 36 without sign or underscores, already checked.
  static BigNumber parse(std::string_view digits, int base);

  std::string to_string(int base = 10) const;
  // Nearest double, infinite beyond its range.
  double to_double() const;
  std::size_t bits() const;
  void trim();
  // kInt where it fits, else kBigInt in `arena`.
  Value to_value(Arena& arena) const;
};

BigNumber operator+(const BigNumber& a, const BigNumber& b);
BigNumber operator-(const BigNumber& a, const BigNumber& b);
BigNumber operator*(const BigNumber& a, const BigNumber& b);
// -1, 0, 1
int compare(const BigNumber& a, const BigNumber& b);

struct Division {
  BigNumber quotient;
  BigNumber remainder;
};
// Rounded to minus infinity as Python's // and %; `divisor` is not zero.
Division floor_divide(const BigNumber& dividend, const BigNumber& divisor);

}  // namespace bl::jinja
