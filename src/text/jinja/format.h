#pragma once
// Python's three ways to put values into text.

#include <string>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// Computes `text % args`: %s %d %-5.2f %(name)s …
Value format_percent(Runtime& rt, const Value& text, const Value& args);

// Computes `text.format(*args, **keywords)`: {} {0} {name.attribute[0]!r:>{width}} …
Value format_braces(Runtime& rt, const Value& text, const CallArgs& args);

// Computes format(value, spec): [[fill]align][sign][z][#][0][width][grouping][.precision][type]
std::string format_value(Runtime& rt, const Value& value, std::string_view spec);

// How to write a float; both mini-languages share the types e E f F g G. The sign is handled
// elsewhere.
struct FloatStyle {
  char type = 'g';
  int precision = 6;
  bool alternate = false;  // keep the point and trailing zeros
};
std::string float_digits(double value, const FloatStyle& style);

// The largest width or precision that a format may ask for.
constexpr int kMaxFormatWidth = 1 << 20;

}  // namespace bl::jinja
