#pragma once
#include <compare>
#include <string>

#include "base/json_fwd.h"

namespace bl {

// A number in decimal notation, exactly: ±whole.fraction.
struct Decimal {
  bool negative = false;    // never for zero
  std::string whole = "0";  // without leading zeros, but at least one digit
  std::string fraction{};   // without trailing zeros

  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool operator==(const Decimal&) const = default;
};

// Compares by value.
std::strong_ordering compare(const Decimal& a, const Decimal& b);

// The value of a JSON number. Numbers that JSON readers hold as doubles are taken as the shortest
// decimal that reads back as the same double. Throws kInvalidArgument if it is infinite.
Decimal decimal_of(const OrderedJson& number);

// value · 10^places.
Decimal shifted(const Decimal& value, int places);
// The power of ten of the first digit that is not zero; `value` must not be zero.
int magnitude_of(const Decimal& value);

// The largest decimal that no reader rounds up to `bound` as a double (towards = −1), or the
// smallest that none rounds down to it (towards = 1).
Decimal neighbour_of(const Decimal& bound, int towards);

}  // namespace bl
