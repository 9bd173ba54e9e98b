#pragma once
// Functions that templates may call: filters, tests, methods, globals.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "text/jinja/value.h"

namespace bl::jinja {

class Runtime;

constexpr std::size_t kMaxParameters = 8;

// Arguments bound to the parameters of a builtin. Filters and tests get their input, methods their
// object as [0].
struct Arguments {
  std::array<Value, kMaxParameters> values;  // kMissing where not given
  CallArgs rest;                             // what a variadic builtin takes beyond its parameters

  const Value& operator[](std::size_t i) const { return values[i]; }
  bool has(std::size_t i) const { return !values[i].missing(); }
  // Given, and not None.
  bool has_value(std::size_t i) const { return has(i) && !values[i].is_none(); }
};

struct Builtin {
  enum class Style : std::uint8_t { kNamed, kPositional, kVariadic };

  std::string_view name;
  Value (*call)(Runtime&, const Arguments&);
  std::uint8_t required = 1;                                // leading parameters without default
  std::array<const char*, kMaxParameters> params{"value"};  // up to the first null
  Style style = Style::kNamed;
};

inline constexpr auto kPositional = Builtin::Style::kPositional;

const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_global(std::string_view name);
// Method `name` of values of this kind; null if there is none.
const Builtin* find_method(const Value& object, std::string_view name);
// Whether Python has such a method, but the sandbox refuses it because it changes its object.
bool is_refused_method(const Value& object, std::string_view name);

// Binds and calls. `self` becomes parameter 0 unless it is kMissing. Throws Error
// (kInvalidArgument) for arguments that do not fit.
Value call_builtin(Runtime& rt, const Builtin& builtin, const Value& self, const CallArgs& args);

}  // namespace bl::jinja
