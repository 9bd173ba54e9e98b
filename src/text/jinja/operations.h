#pragma once
// What Python's operators and built-in functions do with values. Every function throws
// Error(kInvalidArgument) where Python raises.

#include <compare>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// Returns "str", "NoneType", "dict" …
std::string_view type_name(const Value& value);
// Throws the error for using an undefined value, with the value's own message.
[[noreturn]] void fail_undefined(Runtime& rt, const Value& undefined);
std::string undefined_message(const Value& undefined);

// bool(value) in Python.
bool truthy(const Value& value);
// The operator `is`.
bool same(const Value& a, const Value& b);
bool equal(Runtime& rt, const Value& a, const Value& b);
// The order for <, <=, >, >= and sorting. `symbol` stands in the message if the types have no
// order.
std::partial_ordering order(Runtime& rt, const Value& a, const Value& b, const char* symbol);
bool compare(Runtime& rt, CompareOp op, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);
Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b);
Value unary(Runtime& rt, UnaryOp op, const Value& operand);

// len(value); nullopt if it has none.
std::optional<std::size_t> length_of(const Value& value);
std::size_t length(Runtime& rt, const Value& value);
// Converts an index or a count: an int or bool that fits 64 bits. `what` names it in the message.
std::int64_t to_index(Runtime& rt, const Value& value, const char* what);

// `object.name` looks for an attribute first, then for an item; `object[index]` for an item first,
// then for an attribute. The result is undefined if there is neither.
Value get_attribute(Runtime& rt, const Value& object, std::string_view name);
// Looks for an attribute only; returns kMissing if there is none.
Value own_attribute(Runtime& rt, const Value& object, std::string_view name);
Value get_item(Runtime& rt, const Value& object, const Value& index);
struct SliceParts {
  Value start, stop, step;  // kNone if absent
};
Value get_slice(Runtime& rt, const Value& object, const SliceParts& parts);

// Python's sorted(): stable, by the key given for each item.
struct SortItem {
  Value key;
  Value item;
};
void sort_items(Runtime& rt, std::span<SortItem> items, bool reverse);

}  // namespace bl::jinja
