#include "text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/utf8.h"
#include "text/jinja/dict.h"
#include "text/jinja/format.h"
#include "text/jinja/iteration.h"
#include "text/jinja/number.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

bool equal_dicts(Runtime& rt, const Dict& a, const Dict& b) {
  if (a.size != b.size) return false;
  return std::all_of(a.list().begin(), a.list().end(), [&](const DictEntry& entry) {
    const Value* other = find(rt, b, entry.key);
    return other != nullptr && equal(rt, entry.value, *other);
  });
}

bool equal_lists(Runtime& rt, std::span<const Value> a, std::span<const Value> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(rt, a[i], b[i])) return false;
  }
  return true;
}

bool equal_text(Runtime& rt, std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  rt.scan(a.size());
  return a == b;
}

bool equal_ranges(const Range& a, const Range& b) {
  return a.size == b.size &&
         (a.size == 0 || (a.start == b.start && (a.size == 1 || a.step == b.step)));
}

const char* symbol_of(BinaryOp op) {
  constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<std::size_t>(op)];
}

Value repeat(Runtime& rt, const Value& sequence, const Value& times) {
  const std::int64_t count = std::max<std::int64_t>(0, to_index(rt, times, "a repeat count"));
  const auto each = static_cast<std::int64_t>(sequence.size);
  if (each == 0 || count == 0) {
    Value empty = sequence;
    empty.size = 0;
    empty.flags &= Value::kMarkup;
    return empty;
  }
  if (count > static_cast<std::int64_t>(rt.limits.max_output) / each) {
    rt.limit("a repeated value is larger than {} bytes", rt.limits.max_output);
  }
  const auto total = static_cast<std::size_t>(count * each);
  rt.scan(total);
  if (sequence.is_string()) {
    char* out = rt.arena.array<char>(total);
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(out + i * each, sequence.text, static_cast<std::size_t>(each));
    }
    return Value::string({out, total}).as_markup(sequence.is_markup());
  }
  rt.step(static_cast<std::int64_t>(total));
  auto* out = rt.arena.array<Value>(total);
  for (std::int64_t i = 0; i < count; ++i) {
    std::copy(sequence.list().begin(), sequence.list().end(), out + i * each);
  }
  return sequence.is(Kind::kList) ? rt.list({out, total}) : rt.tuple({out, total});
}

Value add_sequences(Runtime& rt, const Value& a, const Value& b) {
  const std::size_t total = std::size_t{a.size} + b.size;
  rt.step(static_cast<std::int64_t>(total));
  auto* out = rt.arena.array<Value>(total);
  std::copy(a.list().begin(), a.list().end(), out);
  std::copy(b.list().begin(), b.list().end(), out + a.size);
  return a.is(Kind::kList) ? rt.list({out, total}) : rt.tuple({out, total});
}

Value add_strings(Runtime& rt, const Value& a, const Value& b) {
  if (!a.is_markup() && !b.is_markup()) return rt.concat(a, b.str());
  return rt.concat(escape_html(rt, a), escape_html(rt, b).str()).as_markup(true);
}

std::partial_ordering order_lists(Runtime& rt, const Value& a, const Value& b, const char* symbol) {
  const std::size_t both = std::min(a.size, b.size);
  for (std::size_t i = 0; i < both; ++i) {
    rt.step();
    if (!equal(rt, a.items[i], b.items[i])) return order(rt, a.items[i], b.items[i], symbol);
  }
  return a.size <=> b.size;
}

bool contains_item(Runtime& rt, const Value& container, const Value& item) {
  Cursor cursor(rt, container);
  for (Value candidate; cursor.next(candidate);) {
    if (same(candidate, item) || equal(rt, candidate, item)) return true;
  }
  return false;
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kTuple:
      return "tuple";
    case Kind::kList:
      return "list";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return value.iterator->type;
    case Kind::kDictView:
      return value.view->part == DictView::Part::kKeys     ? "dict_keys"
             : value.view->part == DictView::Part::kValues ? "dict_values"
                                                           : "dict_items";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return "function";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kBlocks:
      return "TemplateReference";
  }
  return "object";
}

std::string undefined_message(const Value& undefined) {
  const UndefinedInfo& info = *undefined.undefined;
  if (!info.hint.empty()) return std::string(info.hint);
  if (info.object.empty()) return fmt::format("'{}' is undefined", info.name.str());
  if (info.name.is_string()) {
    return fmt::format("'{} object' has no attribute '{}'", info.object, info.name.str());
  }
  if (info.name.is_int64()) {
    return fmt::format("{} object has no element {}", info.object, info.name.integer);
  }
  return fmt::format("{} object has no such element", info.object);
}

void fail_undefined(Runtime& rt, const Value& undefined) {
  rt.fail("{}", undefined_message(undefined));
}

bool truthy(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.number != 0.0;
    case Kind::kString:
    case Kind::kTuple:
    case Kind::kList:
      return value.size != 0;
    case Kind::kDict:
      return value.dict->size != 0;
    case Kind::kRange:
      return value.range->size != 0;
    case Kind::kDictView:
      return value.view->dict.dict->size != 0;
    default:
      return true;
  }
}

bool same(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return a.integer == b.integer;
    case Kind::kInt:  // CPython keeps one object for each small int
      return a.integer == b.integer && a.integer >= -5 && a.integer <= 256;
    case Kind::kFloat:
      return false;
    case Kind::kString:
      return a.size == b.size && (a.text == b.text || (a.size <= 1 && a.str() == b.str()));
    case Kind::kTuple:
      return a.size == b.size && (a.items == b.items || a.size == 0);
    case Kind::kList:
      return a.size == b.size && a.items == b.items && a.size != 0;
    default:
      return a.text == b.text;
  }
}

bool equal(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kNone:
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      return equal_text(rt, a.str(), b.str());
    case Kind::kTuple:
    case Kind::kList:
      rt.step();
      return (a.items == b.items && a.size == b.size) || equal_lists(rt, a.list(), b.list());
    case Kind::kDict:
      rt.step();
      return a.dict == b.dict || equal_dicts(rt, *a.dict, *b.dict);
    case Kind::kRange:
      return equal_ranges(*a.range, *b.range);
    case Kind::kFunction:
      return a.function->builtin == b.function->builtin && same(a.function->self, b.function->self);
    case Kind::kDictView:
      return a.view->part == b.view->part && a.view->part != DictView::Part::kValues &&
             (a.view->part == DictView::Part::kItems
                  ? equal(rt, a.view->dict, b.view->dict)
                  : a.view->dict.dict->size == b.view->dict.dict->size &&
                        std::all_of(a.view->dict.dict->list().begin(),
                                    a.view->dict.dict->list().end(), [&](const DictEntry& entry) {
                                      return find(rt, *b.view->dict.dict, entry.key) != nullptr;
                                    }));
    default:
      return a.text == b.text;
  }
}

std::partial_ordering order(Runtime& rt, const Value& a, const Value& b, const char* symbol) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_undefined()) fail_undefined(rt, a);
  if (b.is_undefined()) fail_undefined(rt, b);
  if (a.is_string() && b.is_string()) {
    // UTF-8 sorts by bytes as it does by code points.
    rt.scan(std::min(a.size, b.size));
    return a.str().compare(b.str()) <=> 0;
  }
  if (a.is_sequence() && a.kind == b.kind) return order_lists(rt, a, b, symbol);
  rt.fail("'{}' not supported between instances of '{}' and '{}'", symbol, type_name(a),
          type_name(b));
}

bool compare(Runtime& rt, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return equal(rt, a, b);
    case CompareOp::kNe:
      return !equal(rt, a, b);
    case CompareOp::kLt:
      return order(rt, a, b, "<") < 0;
    case CompareOp::kLe:
      return order(rt, a, b, "<=") <= 0;
    case CompareOp::kGt:
      return order(rt, a, b, ">") > 0;
    case CompareOp::kGe:
      return order(rt, a, b, ">=") >= 0;
    case CompareOp::kIn:
      return contains(rt, b, a);
    case CompareOp::kNotIn:
      return !contains(rt, b, a);
  }
  return false;
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kString:
      if (item.is_undefined()) fail_undefined(rt, item);
      if (!item.is_string()) {
        rt.fail("'in <string>' requires string as left operand, not {}", type_name(item));
      }
      rt.scan(container.size);
      return find_text(container.str(), item.str()) != std::string_view::npos;
    case Kind::kDict:
      return find(rt, *container.dict, item) != nullptr;
    case Kind::kRange: {
      const Range& range = *container.range;
      if (!item.is_number() || item.is(Kind::kBigInt) || range.size == 0) return false;
      const double number = to_double(rt, item);
      if (number != std::floor(number) || std::fabs(number) > 9.0e15) return false;
      const auto offset = static_cast<std::int64_t>(number) - range.start;
      return offset % range.step == 0 && offset / range.step >= 0 &&
             offset / range.step < range.size;
    }
    case Kind::kDictView:
      if (container.view->part == DictView::Part::kKeys) {
        return find(rt, *container.view->dict.dict, item) != nullptr;
      }
      break;
    default:
      break;
  }
  if (!is_iterable(container)) {
    rt.fail("argument of type '{}' is not iterable", type_name(container));
  }
  return contains_item(rt, container, item);
}

Value binary(Runtime& rt, BinaryOp op, const Value& a, const Value& b) {
  // An undefined value fails with its own message, except that `text % undefined` formats it.
  const bool formats = op == BinaryOp::kMod && a.is_string();
  if (formats) return format_percent(rt, a, b);
  if (a.is_number() && b.is_number()) return arithmetic(rt, op, a, b);
  if (a.is_undefined()) fail_undefined(rt, a);
  if (b.is_undefined()) fail_undefined(rt, b);
  if (op == BinaryOp::kAdd) {
    if (a.is_string() && b.is_string()) return add_strings(rt, a, b);
    if (a.is_sequence() && a.kind == b.kind) return add_sequences(rt, a, b);
    if (a.is_string()) {
      rt.fail("can only concatenate str (not \"{}\") to str", type_name(b));
    }
  }
  if (op == BinaryOp::kMul) {
    if ((a.is_string() || a.is_sequence()) && b.is_integer()) return repeat(rt, a, b);
    if ((b.is_string() || b.is_sequence()) && a.is_integer()) return repeat(rt, b, a);
  }
  rt.fail("unsupported operand type(s) for {}: '{}' and '{}'", symbol_of(op), type_name(a),
          type_name(b));
}

Value unary(Runtime& rt, UnaryOp op, const Value& operand) {
  if (op == UnaryOp::kNot) return Value::boolean(!truthy(operand));
  if (operand.is_undefined()) fail_undefined(rt, operand);
  if (!operand.is_number()) {
    rt.fail("bad operand type for unary {}: '{}'", op == UnaryOp::kNegate ? '-' : '+',
            type_name(operand));
  }
  if (op == UnaryOp::kNegate) return negated(rt, operand);
  return operand.is(Kind::kBool) ? Value::of_int(operand.integer) : operand;
}

std::optional<std::size_t> length_of(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return count_code_points(value.str());
    case Kind::kTuple:
    case Kind::kList:
      return value.size;
    case Kind::kDict:
      return value.dict->size;
    case Kind::kRange:
      return static_cast<std::size_t>(value.range->size);
    case Kind::kDictView:
      return value.view->dict.dict->size;
    default:
      return std::nullopt;
  }
}

std::int64_t to_index(Runtime& rt, const Value& value, const char* what) {
  if (value.is_undefined()) fail_undefined(rt, value);
  if (value.is(Kind::kBigInt)) rt.fail("{} is too large", what);
  if (!value.is_int64()) rt.fail("{} must be an int, not '{}'", what, type_name(value));
  return value.integer;
}

void sort_items(Runtime& rt, std::span<SortItem> items, bool reverse) {
  // order() throws for types that have no order. That may leave the items in any order, which is
  // harmless because the rendering ends.
  const auto less = [&rt](const SortItem& a, const SortItem& b) {
    rt.step();
    return order(rt, a.key, b.key, "<") < 0;
  };
  // Python's reverse keeps equal items in their original order.
  if (reverse) std::reverse(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(), less);
  if (reverse) std::reverse(items.begin(), items.end());
}

}  // namespace bl::jinja
