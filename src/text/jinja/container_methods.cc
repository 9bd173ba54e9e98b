// Methods of list, tuple, dict, int, float, range and the template's own objects, and the look-up
// of methods by kind of value.

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/dict.h"
#include "text/jinja/iteration.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/scope.h"

namespace bl::jinja {
namespace {

Value list_count(Runtime& rt, const Arguments& args) {
  std::int64_t count = 0;
  for (const Value& item : args[0].list()) {
    rt.step();
    count += equal(rt, item, args[1]) ? 1 : 0;
  }
  return Value::of_int(count);
}

Value list_index(Runtime& rt, const Arguments& args) {
  const auto size = static_cast<std::int64_t>(args[0].size);
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    if (!args.has(i)) return otherwise;
    const std::int64_t at = to_index(rt, args[i], "a slice index");
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t end = place(3, size);
  for (std::int64_t i = place(2, 0); i < end; ++i) {
    rt.step();
    if (equal(rt, args[0].items[i], args[1])) return Value::of_int(i);
  }
  rt.fail("the value is not in the {}", type_name(args[0]));
}

Value list_copy(Runtime& rt, const Arguments& args) { return rt.list(rt.copy(args[0].list())); }

Value view(Runtime& rt, const Arguments& args, DictView::Part part) {
  Value value;
  value.kind = Kind::kDictView;
  value.depth = rt.deeper(args[0].depth);
  value.view = rt.arena.make<DictView>(args[0], part);
  return value;
}
Value dict_keys(Runtime& rt, const Arguments& args) {
  return view(rt, args, DictView::Part::kKeys);
}
Value dict_values(Runtime& rt, const Arguments& args) {
  return view(rt, args, DictView::Part::kValues);
}
Value dict_items(Runtime& rt, const Arguments& args) {
  return view(rt, args, DictView::Part::kItems);
}
Value dict_get(Runtime& rt, const Arguments& args) {
  const Value* found = find(rt, *args[0].dict, args[1]);
  if (found != nullptr) return *found;
  return args.has(2) ? args[2] : Value::none();
}
Value dict_copy(Runtime& rt, const Arguments& args) {
  DictBuilder builder(rt, args[0].dict->size);
  builder.update(*args[0].dict);
  return builder.finish();
}

// fromkeys(iterable, value=None)
Value dict_fromkeys(Runtime& rt, const Arguments& args) {
  DictBuilder builder(rt);
  for (const Value& key : items_of(rt, args[1])) {
    builder.set(key, args.has(2) ? args[2] : Value::none());
  }
  return builder.finish();
}

Value int_bit_length(Runtime&, const Arguments& args) {
  return Value::of_int(static_cast<std::int64_t>(BigNumber::from(args[0]).bits()));
}
Value int_conjugate(Runtime& rt, const Arguments& args) {
  return unary(rt, UnaryOp::kPlus, args[0]);
}
Value float_is_integer(Runtime&, const Arguments& args) {
  return Value::boolean(std::isfinite(args[0].number) &&
                        args[0].number == std::floor(args[0].number));
}
Value float_conjugate(Runtime&, const Arguments& args) { return args[0]; }

Value range_count(Runtime& rt, const Arguments& args) {
  return Value::of_int(contains(rt, args[0], args[1]) ? 1 : 0);
}
Value range_index(Runtime& rt, const Arguments& args) {
  if (!contains(rt, args[0], args[1])) rt.fail("the value is not in the range");
  const auto number = static_cast<std::int64_t>(to_double(rt, args[1]));
  return Value::of_int((number - args[0].range->start) / args[0].range->step);
}

Value loop_cycle(Runtime& rt, const Arguments& args) {
  if (args.rest.positional.empty()) rt.fail("no items for cycling given");
  const auto count = static_cast<std::int64_t>(args.rest.positional.size());
  return args.rest.positional[static_cast<std::size_t>(args[0].loop->index0 % count)];
}
Value loop_changed(Runtime& rt, const Arguments& args) {
  Loop& loop = *args[0].loop;
  const Value now = rt.tuple(rt.copy(args.rest.positional));
  const bool changed = loop.last_changed.missing() || !equal(rt, loop.last_changed, now);
  if (changed) loop.last_changed = now;
  return Value::boolean(changed);
}

Value cycler_next(Runtime&, const Arguments& args) {
  Cycler& cycler = *args[0].cycler;
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}
Value cycler_reset(Runtime&, const Arguments& args) {
  args[0].cycler->position = 0;
  return Value::none();
}

constexpr Builtin kSequenceMethods[] = {
    {"count", list_count, 2, {"self", "value"}, kPositional},
    {"index", list_index, 2, {"self", "value", "start", "stop"}, kPositional},
    {"copy", list_copy, 1, {"self"}},
};
constexpr Builtin kDictMethods[] = {
    {"get", dict_get, 2, {"self", "key", "default"}, kPositional},
    {"items", dict_items, 1, {"self"}},
    {"keys", dict_keys, 1, {"self"}},
    {"values", dict_values, 1, {"self"}},
    {"copy", dict_copy, 1, {"self"}},
    {"fromkeys", dict_fromkeys, 2, {"self", "iterable", "value"}, kPositional},
};
constexpr Builtin kIntMethods[] = {
    {"bit_length", int_bit_length, 1, {"self"}},
    {"conjugate", int_conjugate, 1, {"self"}},
};
constexpr Builtin kFloatMethods[] = {
    {"is_integer", float_is_integer, 1, {"self"}},
    {"conjugate", float_conjugate, 1, {"self"}},
};
constexpr Builtin kRangeMethods[] = {
    {"count", range_count, 2, {"self", "value"}, kPositional},
    {"index", range_index, 2, {"self", "value"}, kPositional},
};
constexpr Builtin kLoopMethods[] = {
    {"cycle", loop_cycle, 1, {"self"}, Builtin::Style::kVariadic},
    {"changed", loop_changed, 1, {"self"}, Builtin::Style::kVariadic},
};
constexpr Builtin kCyclerMethods[] = {
    {"next", cycler_next, 1, {"self"}},
    {"reset", cycler_reset, 1, {"self"}},
};

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [name](const Builtin& method) { return method.name == name; });
  return found == table.end() ? nullptr : &*found;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const Builtin* find_method(const Value& object, std::string_view name) {
  switch (object.kind) {
    case Kind::kString:
      for (const auto table :
           {string_search_methods(), string_change_methods(), string_class_methods()}) {
        if (const Builtin* found = find_in(table, name)) return found;
      }
      return nullptr;
    case Kind::kList:
      return find_in(kSequenceMethods, name);
    case Kind::kTuple:
      return name == "copy" ? nullptr : find_in(kSequenceMethods, name);
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
      return find_in(kIntMethods, name);
    case Kind::kFloat:
      return find_in(kFloatMethods, name);
    case Kind::kRange:
      return find_in(kRangeMethods, name);
    case Kind::kLoop:
      return find_in(kLoopMethods, name);
    case Kind::kCycler:
      return find_in(kCyclerMethods, name);
    default:
      return nullptr;
  }
}

bool is_refused_method(const Value& object, std::string_view name) {
  if (object.is(Kind::kDict)) {
    return is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"});
  }
  if (object.is(Kind::kList)) {
    return is_one_of(name,
                     {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  }
  return false;
}

}  // namespace bl::jinja
