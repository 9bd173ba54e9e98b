#include "text/jinja/big_number.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace bl::jinja {
namespace {

using Limbs = std::vector<std::uint32_t>;

void trim_limbs(Limbs& limbs) {
  while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
}

int compare_magnitude(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (std::size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

Limbs add_magnitude(const Limbs& a, const Limbs& b) {
  const Limbs& longer = a.size() >= b.size() ? a : b;
  const Limbs& shorter = a.size() >= b.size() ? b : a;
  Limbs sum(longer.size() + 1);
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < longer.size(); ++i) {
    carry += std::uint64_t{longer[i]} + (i < shorter.size() ? shorter[i] : 0);
    sum[i] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
  sum[longer.size()] = static_cast<std::uint32_t>(carry);
  return sum;
}

// Requires a >= b.
Limbs subtract_magnitude(const Limbs& a, const Limbs& b) {
  Limbs difference(a.size());
  std::int64_t borrow = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::int64_t limb = std::int64_t{a[i]} - (i < b.size() ? b[i] : 0) + borrow;
    borrow = limb < 0 ? -1 : 0;
    if (limb < 0) limb += std::int64_t{1} << 32;
    difference[i] = static_cast<std::uint32_t>(limb);
  }
  return difference;
}

// Divides in place and returns the remainder.
std::uint32_t divide_by_limb(Limbs& limbs, std::uint32_t divisor) {
  std::uint64_t rest = 0;
  for (std::size_t i = limbs.size(); i-- > 0;) {
    rest = rest << 32 | limbs[i];
    limbs[i] = static_cast<std::uint32_t>(rest / divisor);
    rest %= divisor;
  }
  trim_limbs(limbs);
  return static_cast<std::uint32_t>(rest);
}

void shift_left(Limbs& limbs, unsigned bits) {
  if (bits == 0) return;
  std::uint32_t carry = 0;
  for (std::uint32_t& limb : limbs) {
    const std::uint32_t next = limb >> (32 - bits);
    limb = limb << bits | carry;
    carry = next;
  }
  if (carry != 0) limbs.push_back(carry);
}

// Knuth's algorithm D (The Art of Computer Programming, 4.3.1). Both must be trimmed, |a| >= |b|,
// and b must have at least two limbs. Returns quotient and remainder.
std::pair<Limbs, Limbs> divide_magnitude(Limbs a, Limbs b) {
  const auto shift = static_cast<unsigned>(__builtin_clz(b.back()));
  shift_left(a, shift);
  shift_left(b, shift);
  a.push_back(0);
  const std::size_t n = b.size();
  Limbs quotient(a.size() - n);
  for (std::size_t j = quotient.size(); j-- > 0;) {
    const std::uint64_t top = std::uint64_t{a[j + n]} << 32 | a[j + n - 1];
    std::uint64_t guess = top / b[n - 1];
    std::uint64_t rest = top % b[n - 1];
    while (guess >> 32 != 0 || guess * b[n - 2] > (rest << 32 | a[j + n - 2])) {
      --guess;
      rest += b[n - 1];
      if (rest >> 32 != 0) break;
    }
    std::int64_t borrow = 0;
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < n; ++i) {
      carry += guess * b[i];
      const std::int64_t limb =
          std::int64_t{a[i + j]} - static_cast<std::int64_t>(carry & 0xffffffff) + borrow;
      a[i + j] = static_cast<std::uint32_t>(limb);
      borrow = limb >> 32;
      carry >>= 32;
    }
    const std::int64_t limb = std::int64_t{a[j + n]} - static_cast<std::int64_t>(carry) + borrow;
    a[j + n] = static_cast<std::uint32_t>(limb);
    if (limb < 0) {
      --guess;
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < n; ++i) {
        sum += std::uint64_t{a[i + j]} + b[i];
        a[i + j] = static_cast<std::uint32_t>(sum);
        sum >>= 32;
      }
      a[j + n] += static_cast<std::uint32_t>(sum);
    }
    quotient[j] = static_cast<std::uint32_t>(guess);
  }
  a.resize(n);
  for (std::size_t i = 0; shift > 0 && i < n; ++i) {
    const std::uint32_t above = i + 1 < n ? a[i + 1] << (32 - shift) : 0;
    a[i] = a[i] >> shift | above;
  }
  return {std::move(quotient), std::move(a)};
}

BigNumber signed_number(bool negative, Limbs limbs) {
  BigNumber number{negative, std::move(limbs)};
  number.trim();
  return number;
}

}  // namespace

void BigNumber::trim() {
  trim_limbs(limbs);
  if (limbs.empty()) negative = false;
}

BigNumber BigNumber::from(std::int64_t value) {
  const bool negative = value < 0;
  const std::uint64_t magnitude =
      negative ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  return signed_number(negative, {static_cast<std::uint32_t>(magnitude),
                                  static_cast<std::uint32_t>(magnitude >> 32)});
}

BigNumber BigNumber::from(const Value& value) {
  if (!value.is(Kind::kBigInt)) return from(value.integer);
  return {value.big->negative, Limbs(value.big->limbs.begin(), value.big->limbs.end())};
}

BigNumber BigNumber::from(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(std::trunc(value)), &exponent);
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
  exponent -= 53;
  if (exponent <= 0) {
    const std::uint64_t whole = exponent > -64 ? mantissa >> -exponent : 0;
    return signed_number(
        value < 0, {static_cast<std::uint32_t>(whole), static_cast<std::uint32_t>(whole >> 32)});
  }
  Limbs limbs(static_cast<std::size_t>(exponent / 32), 0);
  limbs.push_back(static_cast<std::uint32_t>(mantissa));
  limbs.push_back(static_cast<std::uint32_t>(mantissa >> 32));
  shift_left(limbs, static_cast<unsigned>(exponent % 32));
  return signed_number(value < 0, std::move(limbs));
}

BigNumber BigNumber::parse(std::string_view digits, int base) {
  Limbs limbs;
  for (const char c : digits) {
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    auto carry = static_cast<std::uint64_t>(digit);
    for (std::uint32_t& limb : limbs) {
      carry += std::uint64_t{limb} * static_cast<std::uint64_t>(base);
      limb = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) limbs.push_back(static_cast<std::uint32_t>(carry));
  }
  return signed_number(false, std::move(limbs));
}

std::string BigNumber::to_string(int base) const {
  if (limbs.empty()) return "0";
  // Dividing by the largest power of the base below 2^32 gives many digits at once.
  std::uint32_t power = static_cast<std::uint32_t>(base);
  int digits_each = 1;
  while (std::uint64_t{power} * static_cast<std::uint32_t>(base) < (std::uint64_t{1} << 32)) {
    power *= static_cast<std::uint32_t>(base);
    ++digits_each;
  }
  std::string reversed;
  for (Limbs rest = limbs; !rest.empty();) {
    std::uint32_t part = divide_by_limb(rest, power);
    for (int i = 0; i < digits_each && (part != 0 || !rest.empty()); ++i) {
      const std::uint32_t digit = part % static_cast<std::uint32_t>(base);
      reversed.push_back(static_cast<char>(digit < 10 ? '0' + digit : 'a' + digit - 10));
      part /= static_cast<std::uint32_t>(base);
    }
  }
  if (negative) reversed.push_back('-');
  return {reversed.rbegin(), reversed.rend()};
}

std::size_t BigNumber::bits() const {
  if (limbs.empty()) return 0;
  return limbs.size() * 32 - static_cast<std::size_t>(__builtin_clz(limbs.back()));
}

double BigNumber::to_double() const {
  const std::size_t size = bits();
  if (size > 1024) {
    return negative ? -std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::infinity();
  }
  // The top 64 bits, with the lowest made sticky, are rounded correctly when they are converted.
  std::uint64_t top = 0;
  const std::size_t drop = size > 64 ? size - 64 : 0;
  bool sticky = false;
  for (std::size_t i = limbs.size() * 32; i-- > 0;) {
    const bool bit = (limbs[i / 32] >> (i % 32) & 1) != 0;
    if (i >= drop) {
      top = top << 1 | (bit ? 1 : 0);
    } else {
      sticky = sticky || bit;
    }
  }
  if (sticky) top |= 1;
  const double magnitude = std::ldexp(static_cast<double>(top), static_cast<int>(drop));
  return negative ? -magnitude : magnitude;
}

Value BigNumber::to_value(Arena& arena) const {
  const std::size_t size = bits();
  if (size <= 63) {
    std::uint64_t magnitude = 0;
    for (std::size_t i = limbs.size(); i-- > 0;) magnitude = magnitude << 32 | limbs[i];
    const auto value = static_cast<std::int64_t>(magnitude);
    return Value::of_int(negative ? -value : value);
  }
  if (negative && size == 64 && limbs[0] == 0 && limbs[1] == 0x80000000u) {
    return Value::of_int(std::numeric_limits<std::int64_t>::min());
  }
  auto* stored = arena.array<std::uint32_t>(limbs.size());
  std::copy(limbs.begin(), limbs.end(), stored);
  auto* big = arena.make<BigInt>();
  big->negative = negative;
  big->limbs = {stored, limbs.size()};
  Value value;
  value.kind = Kind::kBigInt;
  value.big = big;
  return value;
}

BigNumber operator+(const BigNumber& a, const BigNumber& b) {
  if (a.negative == b.negative) return signed_number(a.negative, add_magnitude(a.limbs, b.limbs));
  if (compare_magnitude(a.limbs, b.limbs) >= 0) {
    return signed_number(a.negative, subtract_magnitude(a.limbs, b.limbs));
  }
  return signed_number(b.negative, subtract_magnitude(b.limbs, a.limbs));
}

BigNumber operator-(const BigNumber& a, const BigNumber& b) {
  return a + BigNumber{!b.negative, b.limbs};
}

BigNumber operator*(const BigNumber& a, const BigNumber& b) {
  Limbs product(a.limbs.size() + b.limbs.size());
  for (std::size_t i = 0; i < a.limbs.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.limbs.size(); ++j) {
      carry += std::uint64_t{a.limbs[i]} * b.limbs[j] + product[i + j];
      product[i + j] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    product[i + b.limbs.size()] = static_cast<std::uint32_t>(carry);
  }
  return signed_number(a.negative != b.negative, std::move(product));
}

int compare(const BigNumber& a, const BigNumber& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int magnitude = compare_magnitude(a.limbs, b.limbs);
  return a.negative ? -magnitude : magnitude;
}

Division floor_divide(const BigNumber& dividend, const BigNumber& divisor) {
  Limbs quotient;
  Limbs rest = dividend.limbs;
  if (compare_magnitude(dividend.limbs, divisor.limbs) >= 0) {
    if (divisor.limbs.size() == 1) {
      quotient = dividend.limbs;
      rest = {divide_by_limb(quotient, divisor.limbs[0])};
    } else {
      std::tie(quotient, rest) = divide_magnitude(dividend.limbs, divisor.limbs);
    }
  }
  Division result{signed_number(dividend.negative != divisor.negative, std::move(quotient)),
                  signed_number(dividend.negative, std::move(rest))};
  if (!result.remainder.limbs.empty() && dividend.negative != divisor.negative) {
    result.quotient = result.quotient - BigNumber::from(std::int64_t{1});
    result.remainder = result.remainder + divisor;
  }
  return result;
}

}  // namespace bl::jinja
