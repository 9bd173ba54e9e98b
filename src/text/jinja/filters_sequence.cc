// Filters that take lists apart and put them together.

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/attribute_path.h"
#include "text/jinja/dict.h"
#include "text/jinja/iteration.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

Value filter_length(Runtime& rt, const Arguments& args) {
  if (args[0].is_string()) rt.scan(args[0].size);
  if (args[0].is(Kind::kLoop)) return own_attribute(rt, args[0], "length");
  const auto length = length_of(args[0]);
  if (!length) rt.fail("object of type '{}' has no len()", type_name(args[0]));
  return Value::of_int(static_cast<std::int64_t>(*length));
}

Value filter_first(Runtime& rt, const Arguments& args) {
  Cursor cursor(rt, args[0]);
  Value item;
  return cursor.next(item) ? item : rt.undefined("No first item, sequence was empty.");
}

// Whether Python's reversed() accepts the value.
bool is_reversible(const Value& value) { return length_of(value).has_value(); }

Value filter_last(Runtime& rt, const Arguments& args) {
  const Value& value = args[0];
  if (!is_reversible(value)) rt.fail("'{}' object is not reversible", type_name(value));
  if (value.is_string() && value.size > 0) {
    const unsigned size = code_point_before(value.str(), value.size).size;
    return Value::string(value.str().substr(value.size - size));
  }
  const auto items = items_of(rt, value);
  return items.empty() ? rt.undefined("No last item, sequence was empty.") : items.back();
}

Value filter_reverse(Runtime& rt, const Arguments& args) {
  const Value& value = args[0];
  if (value.is_string()) {
    rt.scan(value.size);
    std::string out;
    out.reserve(value.size);
    for (std::size_t end = value.size; end > 0;) {
      const unsigned size = code_point_before(value.str(), end).size;
      end -= size;
      out += value.str().substr(end, size);
    }
    return rt.string(out).as_markup(value.is_markup());
  }
  const auto items = items_of(rt, value);
  rt.step(static_cast<std::int64_t>(items.size()));
  auto* reversed = rt.arena.array<Value>(items.size());
  std::reverse_copy(items.begin(), items.end(), reversed);
  const std::span<const Value> out(reversed, items.size());
  return is_reversible(value) ? rt.iterator(out, "reversed") : rt.list(out);
}

Value filter_list(Runtime& rt, const Arguments& args) {
  if (!args[0].is(Kind::kList)) return rt.list(items_of(rt, args[0]));
  return rt.list(rt.copy(args[0].list()));
}

Value filter_items(Runtime& rt, const Arguments& args) {
  if (args[0].is_undefined()) return rt.iterator({});
  if (!args[0].is(Kind::kDict)) rt.fail("Can only get item pairs from a mapping.");
  return rt.iterator(view_items(rt, {args[0], DictView::Part::kItems}));
}

// join(value, d="", attribute=None)
Value filter_join(Runtime& rt, const Arguments& args) {
  const AttributePath path(rt, args[2]);
  std::string separator;
  if (args.has(1)) append_str(rt, args[1], separator);
  std::string out;
  Cursor cursor(rt, args[0]);
  bool first = true;
  for (Value item; cursor.next(item); first = false) {
    if (!first) out += separator;
    append_str(rt, path.get(item), out);
    rt.check_size(out.size());
  }
  return rt.string(out).as_markup(rt.autoescape);
}

// batch(value, linecount, fill_with=None)
Value filter_batch(Runtime& rt, const Arguments& args) {
  const std::int64_t count = to_index(rt, args[1], "linecount");
  ValueVector batches = rt.vector();
  ValueVector batch = rt.vector();
  const auto flush = [&] {
    batches.push_back(rt.list(rt.copy(batch)));
    batch.clear();
  };
  for (const Value& item : items_of(rt, args[0])) {
    rt.step();
    if (static_cast<std::int64_t>(batch.size()) == count) flush();
    batch.push_back(item);
  }
  if (!batch.empty()) {
    while (args.has_value(2) && static_cast<std::int64_t>(batch.size()) < count) {
      rt.step();
      batch.push_back(args[2]);
    }
    flush();
  }
  return rt.iterator(Runtime::keep(batches));
}

// slice(value, slices, fill_with=None)
Value filter_slice(Runtime& rt, const Arguments& args) {
  const std::int64_t slices = to_index(rt, args[1], "slices");
  const auto items = items_of(rt, args[0]);
  if (slices == 0) rt.fail("integer division or modulo by zero");
  const auto length = static_cast<std::int64_t>(items.size());
  ValueVector columns = rt.vector();
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    rt.step();
    const bool has_extra = i < length % slices;
    const std::int64_t size = length / slices + (has_extra ? 1 : 0);
    const auto column =
        items.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
    begin += size;
    if (has_extra || !args.has_value(2)) {
      columns.push_back(rt.list(column));
      continue;
    }
    auto* filled = rt.arena.array<Value>(column.size() + 1);
    std::copy(column.begin(), column.end(), filled);
    filled[column.size()] = args[2];
    columns.push_back(rt.list({filled, column.size() + 1}));
  }
  return rt.iterator(Runtime::keep(columns));
}

Value filter_random(Runtime& rt, const Arguments& args) {
  if (!is_reversible(args[0])) rt.fail("object of type '{}' has no len()", type_name(args[0]));
  const auto items = items_of(rt, args[0]);
  if (items.empty()) return rt.undefined("No random item, sequence was empty.");
  return items[rt.random() % items.size()];
}

// default(value, default_value="", boolean=False)
Value filter_default(Runtime&, const Arguments& args) {
  const bool replace =
      args[0].is_undefined() || (args.has(2) && truthy(args[2]) && !truthy(args[0]));
  if (!replace) return args[0];
  return args.has(1) ? args[1] : Value::string("");
}

// attr(obj, name): the attribute, never an item.
Value filter_attr(Runtime& rt, const Arguments& args) {
  if (args[0].is_undefined()) fail_undefined(rt, args[0]);
  if (!args[1].is_string()) rt.fail("attribute name must be string, not '{}'", type_name(args[1]));
  const Value own = own_attribute(rt, args[0], args[1].str());
  return own.missing() ? rt.undefined(args[0], args[1]) : own;
}

constexpr Builtin kSequenceFilters[] = {
    {"length", filter_length, 1, {"value"}},
    {"count", filter_length, 1, {"value"}},
    {"default", filter_default, 1, {"value", "default_value", "boolean"}},
    {"d", filter_default, 1, {"value", "default_value", "boolean"}},
    {"join", filter_join, 1, {"value", "d", "attribute"}},
    {"list", filter_list, 1, {"value"}},
    {"items", filter_items, 1, {"value"}},
    {"first", filter_first, 1, {"seq"}},
    {"last", filter_last, 1, {"seq"}},
    {"reverse", filter_reverse, 1, {"value"}},
    {"batch", filter_batch, 2, {"value", "linecount", "fill_with"}},
    {"slice", filter_slice, 2, {"value", "slices", "fill_with"}},
    {"random", filter_random, 1, {"seq"}},
    {"attr", filter_attr, 2, {"obj", "name"}},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kSequenceFilters; }

}  // namespace bl::jinja
