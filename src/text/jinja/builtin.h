#pragma once
// The functions that templates may call: filters, tests, methods, globals.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "text/jinja/value.h"

namespace bl::jinja {

class Runtime;

constexpr std::size_t kMaxParameters = 8;

// The arguments that are bound to the parameters of a builtin. [0] is the input of a filter or a
// test, and the object of a method.
struct Arguments {
  std::array<Value, kMaxParameters> values;  // kMissing if not given
  CallArgs rest;  // arguments beyond those parameters (variadic builtins)

  const Value& operator[](std::size_t i) const { return values[i]; }
  bool has(std::size_t i) const { return !values[i].missing(); }
  // Whether the argument is given and not None.
  bool has_value(std::size_t i) const { return has(i) && !values[i].is_none(); }
};

// A function with its parameters. kNamed ones accept keywords, kPositional ones do not, and
// kVariadic ones also take any number of further arguments.
struct Builtin {
  enum class Style : std::uint8_t { kNamed, kPositional, kVariadic };

  std::string_view name;
  Value (*call)(Runtime&, const Arguments&);
  std::uint8_t required = 1;                                // leading parameters without a default
  std::array<const char*, kMaxParameters> params{"value"};  // ends at the first null
  Style style = Style::kNamed;
};

inline constexpr auto kPositional = Builtin::Style::kPositional;

// These return null if there is no such function.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_global(std::string_view name);
// Returns method `name` of values of this kind, or null if there is none.
const Builtin* find_method(const Value& object, std::string_view name);
// Whether Python has such a method, but the sandbox refuses it because it changes its object.
bool is_refused_method(const Value& object, std::string_view name);

// Binds the arguments and calls the builtin. `self` becomes parameter 0 unless it is kMissing.
// Throws Error(kInvalidArgument) if the arguments do not fit.
Value call_builtin(Runtime& rt, const Builtin& builtin, const Value& self, const CallArgs& args);

}  // namespace bl::jinja
