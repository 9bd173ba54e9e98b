// The filters map, select, reject, selectattr and rejectattr, and the look-up of all filters.

#include <algorithm>

#include "text/jinja/attribute_path.h"
#include "text/jinja/iteration.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/operations.h"

namespace bl::jinja {
namespace {

const Builtin& need_builtin(Runtime& rt, const Value& name, bool is_filter) {
  const Builtin* found = nullptr;
  if (name.is_string()) found = is_filter ? find_filter(name.str()) : find_test(name.str());
  if (found == nullptr) {
    rt.fail("there is no {} named '{}'", is_filter ? "filter" : "test",
            name.is_string() ? name.str() : type_name(name));
  }
  return *found;
}

Value keyword(const CallArgs& args, std::string_view name) {
  for (const Keyword& keyword : args.keywords) {
    if (keyword.name == name) return keyword.value;
  }
  return {};
}

// map(value, filter, *its arguments), or map(value, attribute=…, default=…)
Value filter_map(Runtime& rt, const Arguments& args) {
  if (!truthy(args[0])) return rt.iterator({});
  const CallArgs& rest = args.rest;
  ValueVector items = rt.vector();
  const Value attribute = keyword(rest, "attribute");
  if (rest.positional.empty() && !attribute.missing()) {
    const Value otherwise = keyword(rest, "default");
    for (const Keyword& other : rest.keywords) {
      if (other.name != "attribute" && other.name != "default") {
        rt.fail("Unexpected keyword argument '{}'", other.name);
      }
    }
    const AttributePath path(rt, attribute);
    for (const Value& item : items_of(rt, args[0])) items.push_back(path.get(item, otherwise));
  } else {
    if (rest.positional.empty()) rt.fail("map requires a filter argument");
    const Builtin& filter = need_builtin(rt, rest.positional[0], true);
    const CallArgs inner{rest.positional.subspan(1), rest.keywords};
    for (const Value& item : items_of(rt, args[0])) {
      items.push_back(call_builtin(rt, filter, item, inner));
    }
  }
  return rt.iterator(Runtime::keep(items));
}

// select(value, test, *its arguments); selectattr has the attribute before the test. Without a
// test, the truth of the value decides.
Value select_items(Runtime& rt, const Arguments& args, bool wanted, bool by_attribute) {
  if (!truthy(args[0])) return rt.iterator({});
  std::span<const Value> positional = args.rest.positional;
  Value attribute;
  if (by_attribute) {
    if (positional.empty()) rt.fail("Missing parameter for attribute name");
    attribute = positional[0];
    positional = positional.subspan(1);
  }
  const AttributePath path(rt, attribute);
  const Builtin* test = nullptr;
  CallArgs inner;
  if (!positional.empty()) {
    test = &need_builtin(rt, positional[0], false);
    inner = {positional.subspan(1), args.rest.keywords};
  }
  ValueVector items = rt.vector();
  for (const Value& item : items_of(rt, args[0])) {
    rt.step();
    const Value value = path.get(item);
    if (truthy(test == nullptr ? value : call_builtin(rt, *test, value, inner)) == wanted) {
      items.push_back(item);
    }
  }
  return rt.iterator(Runtime::keep(items));
}
Value filter_select(Runtime& rt, const Arguments& args) {
  return select_items(rt, args, true, false);
}
Value filter_reject(Runtime& rt, const Arguments& args) {
  return select_items(rt, args, false, false);
}
Value filter_selectattr(Runtime& rt, const Arguments& args) {
  return select_items(rt, args, true, true);
}
Value filter_rejectattr(Runtime& rt, const Arguments& args) {
  return select_items(rt, args, false, true);
}

using enum Builtin::Style;

constexpr Builtin kSelectFilters[] = {
    {"map", filter_map, 1, {"value"}, kVariadic},
    {"select", filter_select, 1, {"value"}, kVariadic},
    {"reject", filter_reject, 1, {"value"}, kVariadic},
    {"selectattr", filter_selectattr, 1, {"value"}, kVariadic},
    {"rejectattr", filter_rejectattr, 1, {"value"}, kVariadic},
};

}  // namespace

std::span<const Builtin> select_filters() { return kSelectFilters; }

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), sequence_filters(), select_filters(), order_filters(),
                           number_filters(), markup_filters()}) {
    for (const Builtin& filter : table) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace bl::jinja
