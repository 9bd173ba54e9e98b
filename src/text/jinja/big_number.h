#pragma once
// Integers beyond 64 bits, as Python's int has them. The algorithms are the schoolbook ones: few
// templates meet such numbers, those have few digits, and kMaxIntBits keeps the rest harmless.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/arena.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// The stored form of a kBigInt: a sign and the magnitude in limbs of 32 bits, lowest first.
class BigInt {
 public:
  bool negative = false;
  std::span<const std::uint32_t> limbs;
};

// A number during computation. It is always trimmed; zero has no limbs and is not negative.
struct BigNumber {
  bool negative = false;
  std::vector<std::uint32_t> limbs;

  static BigNumber from(std::int64_t value);
  // `value` must be an integer (Value::is_integer()).
  static BigNumber from(const Value& value);
  // Rounds toward zero; `value` must be finite.
  static BigNumber from(double value);
  // Parses digits of a base from 2 to 36, which must be valid and without sign or underscores.
  static BigNumber parse(std::string_view digits, int base);

  std::string to_string(int base = 10) const;
  // The nearest double; infinite if the number is beyond its range.
  double to_double() const;
  // The bits of the magnitude; 0 for zero.
  std::size_t bits() const;
  void trim();
  // Returns a kInt if the number fits, else a kBigInt in `arena`.
  Value to_value(Arena& arena) const;
};

BigNumber operator+(const BigNumber& a, const BigNumber& b);
BigNumber operator-(const BigNumber& a, const BigNumber& b);
BigNumber operator*(const BigNumber& a, const BigNumber& b);
// Returns -1, 0 or 1.
int compare(const BigNumber& a, const BigNumber& b);

struct Division {
  BigNumber quotient;
  BigNumber remainder;
};
// Rounds to minus infinity, as Python's // and % do. `divisor` must not be zero.
Division floor_divide(const BigNumber& dividend, const BigNumber& divisor);

}  // namespace bl::jinja
