// The tests that may follow `is`.

#include <algorithm>

#include "text/jinja/builtin.h"
#include "text/jinja/iteration.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

bool rest_is(Runtime& rt, const Arguments& args, std::int64_t divisor, std::int64_t rest) {
  return equal(rt, binary(rt, BinaryOp::kMod, args[0], Value::of_int(divisor)),
               Value::of_int(rest));
}
Value test_odd(Runtime& rt, const Arguments& args) {
  return Value::boolean(rest_is(rt, args, 2, 1));
}
Value test_even(Runtime& rt, const Arguments& args) {
  return Value::boolean(rest_is(rt, args, 2, 0));
}
Value test_divisibleby(Runtime& rt, const Arguments& args) {
  return Value::boolean(equal(rt, binary(rt, BinaryOp::kMod, args[0], args[1]), Value::of_int(0)));
}

Value test_defined(Runtime&, const Arguments& args) {
  return Value::boolean(!args[0].is_undefined());
}
Value test_undefined(Runtime&, const Arguments& args) {
  return Value::boolean(args[0].is_undefined());
}
Value test_none(Runtime&, const Arguments& args) { return Value::boolean(args[0].is_none()); }
Value test_boolean(Runtime&, const Arguments& args) {
  return Value::boolean(args[0].is(Kind::kBool));
}
Value test_true(Runtime&, const Arguments& args) {
  return Value::boolean(args[0].is(Kind::kBool) && args[0].integer == 1);
}
Value test_false(Runtime&, const Arguments& args) {
  return Value::boolean(args[0].is(Kind::kBool) && args[0].integer == 0);
}
Value test_integer(Runtime&, const Arguments& args) {
  return Value::boolean(args[0].is(Kind::kInt) || args[0].is(Kind::kBigInt));
}
Value test_float(Runtime&, const Arguments& args) {
  return Value::boolean(args[0].is(Kind::kFloat));
}
Value test_number(Runtime&, const Arguments& args) { return Value::boolean(args[0].is_number()); }
Value test_string(Runtime&, const Arguments& args) { return Value::boolean(args[0].is_string()); }
Value test_mapping(Runtime&, const Arguments& args) {
  return Value::boolean(args[0].is(Kind::kDict));
}
Value test_sequence(Runtime&, const Arguments& args) {
  const Value& value = args[0];
  return Value::boolean(value.is_string() || value.is_sequence() || value.is(Kind::kDict) ||
                        value.is(Kind::kRange) || value.is_undefined());
}
Value test_iterable(Runtime&, const Arguments& args) {
  return Value::boolean(is_iterable(args[0]) || args[0].is(Kind::kLoop));
}
Value test_callable(Runtime&, const Arguments& args) {
  const Kind kind = args[0].kind;
  return Value::boolean(kind == Kind::kMacro || kind == Kind::kFunction || kind == Kind::kLoop ||
                        kind == Kind::kJoiner || kind == Kind::kUndefined);
}
Value test_escaped(Runtime&, const Arguments& args) { return Value::boolean(args[0].is_markup()); }
Value test_sameas(Runtime&, const Arguments& args) {
  return Value::boolean(same(args[0], args[1]));
}
Value test_in(Runtime& rt, const Arguments& args) {
  return Value::boolean(contains(rt, args[1], args[0]));
}

Value cased(Runtime& rt, const Arguments& args, std::string_view method) {
  const Value text = str_of(rt, args[0]);
  return call_builtin(rt, *find_method(text, method), text, {});
}
Value test_lower(Runtime& rt, const Arguments& args) { return cased(rt, args, "islower"); }
Value test_upper(Runtime& rt, const Arguments& args) { return cased(rt, args, "isupper"); }

Value test_filter(Runtime&, const Arguments& args) {
  return Value::boolean(args[0].is_string() && find_filter(args[0].str()) != nullptr);
}
Value test_test(Runtime&, const Arguments& args) {
  return Value::boolean(args[0].is_string() && find_test(args[0].str()) != nullptr);
}

template <CompareOp Op>
Value test_compare(Runtime& rt, const Arguments& args) {
  return Value::boolean(compare(rt, Op, args[0], args[1]));
}

constexpr Builtin kTests[] = {
    {"defined", test_defined, 1, {"value"}},
    {"undefined", test_undefined, 1, {"value"}},
    {"none", test_none, 1, {"value"}},
    {"string", test_string, 1, {"value"}},
    {"mapping", test_mapping, 1, {"value"}},
    {"iterable", test_iterable, 1, {"value"}},
    {"sequence", test_sequence, 1, {"value"}},
    {"boolean", test_boolean, 1, {"value"}},
    {"true", test_true, 1, {"value"}},
    {"false", test_false, 1, {"value"}},
    {"number", test_number, 1, {"value"}},
    {"integer", test_integer, 1, {"value"}},
    {"float", test_float, 1, {"value"}},
    {"callable", test_callable, 1, {"obj"}, kPositional},
    {"odd", test_odd, 1, {"value"}},
    {"even", test_even, 1, {"value"}},
    {"divisibleby", test_divisibleby, 2, {"value", "num"}},
    {"lower", test_lower, 1, {"value"}},
    {"upper", test_upper, 1, {"value"}},
    {"escaped", test_escaped, 1, {"value"}},
    {"sameas", test_sameas, 2, {"value", "other"}},
    {"in", test_in, 2, {"value", "seq"}},
    {"filter", test_filter, 1, {"value"}},
    {"test", test_test, 1, {"value"}},
    {"==", test_compare<CompareOp::kEq>, 2, {"a", "b"}, kPositional},
    {"eq", test_compare<CompareOp::kEq>, 2, {"a", "b"}, kPositional},
    {"equalto", test_compare<CompareOp::kEq>, 2, {"a", "b"}, kPositional},
    {"!=", test_compare<CompareOp::kNe>, 2, {"a", "b"}, kPositional},
    {"ne", test_compare<CompareOp::kNe>, 2, {"a", "b"}, kPositional},
    {">", test_compare<CompareOp::kGt>, 2, {"a", "b"}, kPositional},
    {"gt", test_compare<CompareOp::kGt>, 2, {"a", "b"}, kPositional},
    {"greaterthan", test_compare<CompareOp::kGt>, 2, {"a", "b"}, kPositional},
    {">=", test_compare<CompareOp::kGe>, 2, {"a", "b"}, kPositional},
    {"ge", test_compare<CompareOp::kGe>, 2, {"a", "b"}, kPositional},
    {"<", test_compare<CompareOp::kLt>, 2, {"a", "b"}, kPositional},
    {"lt", test_compare<CompareOp::kLt>, 2, {"a", "b"}, kPositional},
    {"lessthan", test_compare<CompareOp::kLt>, 2, {"a", "b"}, kPositional},
    {"<=", test_compare<CompareOp::kLe>, 2, {"a", "b"}, kPositional},
    {"le", test_compare<CompareOp::kLe>, 2, {"a", "b"}, kPositional},
};

}  // namespace

const Builtin* find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [name](const Builtin& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace bl::jinja
