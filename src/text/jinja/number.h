#pragma once
// Python's numbers: int without bound (in practice: kMaxIntBits), float, bool as int.

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

// `text` is digits with an optional fraction and exponent; infinity or 0 out of range.
double parse_double(std::string_view text);
// int(text, base) and float(text): white space around, sign, underscores, digits of any script.
// Empty where Python raises ValueError. `base` 0 or 2..36.
std::optional<Value> parse_int(Runtime& rt, std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

// repr of a float: the shortest text that reads back the same.
std::string float_text(double value);
// Digits of any Value::is_integer(), with '-'; throws where Python would for too many.
std::string integer_text(Runtime& rt, const Value& value, int base = 10);

// Of any Value::is_number(); throws where an int is too big for a float.
double to_double(Runtime& rt, const Value& value);
// int(value) of a finite float.
Value truncated(Runtime& rt, double value);

// Both are numbers.
Value arithmetic(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value negated(Runtime& rt, const Value& value);
std::partial_ordering compare_numbers(const Value& a, const Value& b);

}  // namespace bl::jinja
