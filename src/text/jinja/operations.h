#pragma once
// What Python's operators and built-in functions do with values. Every function throws Error
// (kInvalidArgument) where Python raises.

#include <compare>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// "str", "NoneType", "dict" …
std::string_view type_name(const Value& value);
// Using an undefined value: raises with its message.
[[noreturn]] void fail_undefined(Runtime& rt, const Value& undefined);
std::string undefined_message(const Value& undefined);

bool truthy(const Value& value);
// The operator `is`.
bool same(const Value& a, const Value& b);
bool equal(Runtime& rt, const Value& a, const Value& b);
// For <, <=, >, >= and sorting; `symbol` stands in the message when types have no order.
std::partial_ordering order(Runtime& rt, const Value& a, const Value& b, const char* symbol);
bool compare(Runtime& rt, CompareOp op, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);
Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value unary(Runtime& rt, UnaryOp op, const Value& operand);

// len(value), empty where it has none.
std::optional<std::size_t> length_of(const Value& value);
std::size_t length(Runtime& rt, const Value& value);
// An index or count: an int (bool counts) within 64 bits; `what` names it in the message.
std::int64_t to_index(Runtime& rt, const Value& value, const char* what);

// Object attribute first, then item (`object.name`); item first, then attribute
// (`object[index]`). Undefined where there is neither.
Value get_attribute(Runtime& rt, const Value& object, std::string_view name);
// The attribute alone, kMissing where there is none.
Value own_attribute(Runtime& rt, const Value& object, std::string_view name);
Value get_item(Runtime& rt, const Value& object, const Value& index);
struct SliceParts {
  Value start, stop, step;  // kNone when absent
};
Value get_slice(Runtime& rt, const Value& object, const SliceParts& parts);

// Python's sorted(): stable, by the keys given for each item.
struct SortItem {
  Value key;
  Value item;
};
void sort_items(Runtime& rt, std::span<SortItem> items, bool reverse);

}  // namespace bl::jinja
