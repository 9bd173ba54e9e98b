#pragma once
// Python's numbers: int (here of at most kMaxIntBits), float, and bool as int.

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/big_number.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// Python refuses to convert longer ones between text and int.
constexpr std::size_t kMaxIntDigits = 4300;
constexpr std::size_t kMaxIntBits = std::size_t{1} << 16;

// `text` is digits with an optional fraction and exponent. Out of range, the result is infinite or
// 0.
double parse_double(std::string_view text);
// int(text, base) and float(text): white space around, sign, underscores, digits of any script.
// They return nullopt where Python raises ValueError. `base` is 0 or 2 to 36.
std::optional<Value> parse_int(Runtime& rt, std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

// The repr of a float: the shortest text that reads back as the same float.
std::string float_text(double value);
// The digits of an integer value, with '-'. Throws where Python would for too many digits.
std::string integer_text(Runtime& rt, const Value& value, int base = 10);

// Converts any number. Throws if an int is too big for a float.
double to_double(Runtime& rt, const Value& value);
// Computes int(value) of a finite float.
Value truncated(Runtime& rt, double value);

// In these, `a`, `b` and `value` must be numbers.
Value arithmetic(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value negated(Runtime& rt, const Value& value);
std::partial_ordering compare_numbers(const Value& a, const Value& b);

}  // namespace bl::jinja
