// Filters that compare items: sort, unique, min, max, groupby, sum and others.

#include <algorithm>

#include "text/jinja/attribute_path.h"
#include "text/jinja/dict.h"
#include "text/jinja/iteration.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"

namespace bl::jinja {

AttributePath::AttributePath(Runtime& rt, const Value& attribute) : rt_(rt) {
  if (attribute.missing() || attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.str();
  for (;;) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    const bool digits = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    const auto number = digits ? parse_int(rt, part, 10) : std::nullopt;
    parts_.push_back(number ? *number : Value::string(part));
    rt.step();
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
}

Value AttributePath::get(const Value& item, const Value& otherwise) const {
  Value value = item;
  for (const Value& part : parts_) {
    rt_.step();
    value = get_item(rt_, value, part);
    if (value.is_undefined() && !otherwise.missing() && !otherwise.is_none()) value = otherwise;
  }
  return value;
}

Value ignore_case(Runtime& rt, const Value& value) {
  if (!value.is_string()) return value;
  rt.step(value.size / 16);
  return rt.string(to_lower(value.str()));
}

namespace {

bool flag(const Arguments& args, std::size_t i) { return args.has(i) && truthy(args[i]); }

Value folded(Runtime& rt, const Value& value, bool case_sensitive) {
  return case_sensitive ? value : ignore_case(rt, value);
}

Value list_of(Runtime& rt, std::span<const SortItem> sorted) {
  auto* items = rt.arena.array<Value>(sorted.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) items[i] = sorted[i].item;
  return rt.list({items, sorted.size()});
}

// sort(value, reverse=False, case_sensitive=False, attribute=None). "a,b" sorts by a, then by b.
Value filter_sort(Runtime& rt, const Arguments& args) {
  std::vector<AttributePath> paths;
  if (args.has_value(3) && args[3].is_string()) {
    std::string_view rest = args[3].str();
    for (;;) {
      const std::size_t end = std::min(rest.find(','), rest.size());
      paths.emplace_back(rt, Value::string(rest.substr(0, end)));
      rt.step();
      if (end == rest.size()) break;
      rest.remove_prefix(end + 1);
    }
  } else {
    paths.emplace_back(rt, args[3]);
  }
  std::vector<SortItem> items;
  for (const Value& item : items_of(rt, args[0])) {
    auto* keys = rt.arena.array<Value>(paths.size());
    for (std::size_t i = 0; i < paths.size(); ++i) {
      keys[i] = folded(rt, paths[i].get(item), flag(args, 2));
    }
    // Keys are lists, as in Python: comparing lists skips equal items without ordering them, so
    // that both keys may hold undefined values.
    items.push_back({rt.list({keys, paths.size()}), item});
  }
  sort_items(rt, items, flag(args, 1));
  return list_of(rt, items);
}

// dictsort(value, case_sensitive=False, by="key", reverse=False)
Value filter_dictsort(Runtime& rt, const Arguments& args) {
  bool by_value = false;
  if (args.has(2)) {
    const bool is_text = args[2].is_string();
    by_value = is_text && args[2].str() == "value";
    if (!by_value && !(is_text && args[2].str() == "key")) {
      rt.fail("You can only sort by either \"key\" or \"value\"");
    }
  }
  if (args[0].is_undefined()) fail_undefined(rt, args[0]);
  if (!args[0].is(Kind::kDict)) rt.fail("'{}' has no items to sort", type_name(args[0]));
  std::vector<SortItem> items;
  for (const DictEntry& entry : args[0].dict->list()) {
    rt.step();
    items.push_back({folded(rt, by_value ? entry.value : entry.key, flag(args, 1)),
                     rt.pair(entry.key, entry.value)});
  }
  sort_items(rt, items, flag(args, 3));
  return list_of(rt, items);
}

// unique(value, case_sensitive=False, attribute=None)
Value filter_unique(Runtime& rt, const Arguments& args) {
  const AttributePath path(rt, args[2]);
  DictBuilder seen(rt);
  ValueVector items = rt.vector();
  for (const Value& item : items_of(rt, args[0])) {
    if (seen.add(folded(rt, path.get(item), flag(args, 1)))) items.push_back(item);
  }
  return rt.iterator(Runtime::keep(items));
}

// min and max(value, case_sensitive=False, attribute=None)
Value extreme(Runtime& rt, const Arguments& args, bool largest) {
  const AttributePath path(rt, args[2]);
  const auto items = items_of(rt, args[0]);
  if (items.empty()) return rt.undefined("No aggregated item, sequence was empty.");
  Value best = items[0];
  Value best_key = folded(rt, path.get(best), flag(args, 1));
  for (const Value& item : items.subspan(1)) {
    rt.step();
    const Value key = folded(rt, path.get(item), flag(args, 1));
    const bool better =
        largest ? order(rt, key, best_key, ">") > 0 : order(rt, key, best_key, "<") < 0;
    if (!better) continue;
    best = item;
    best_key = key;
  }
  return best;
}
Value filter_min(Runtime& rt, const Arguments& args) { return extreme(rt, args, false); }
Value filter_max(Runtime& rt, const Arguments& args) { return extreme(rt, args, true); }

// groupby(value, attribute, default=None, case_sensitive=False)
Value filter_groupby(Runtime& rt, const Arguments& args) {
  const AttributePath path(rt, args[1]);
  const bool case_sensitive = flag(args, 3);
  std::vector<SortItem> items;
  for (const Value& item : items_of(rt, args[0])) {
    rt.step();
    items.push_back({folded(rt, path.get(item, args[2]), case_sensitive), item});
  }
  sort_items(rt, items, false);
  ValueVector groups = rt.vector();
  for (std::size_t begin = 0; begin < items.size();) {
    std::size_t end = begin + 1;
    while (end < items.size() && equal(rt, items[begin].key, items[end].key)) ++end;
    const Value members = list_of(rt, std::span(items).subspan(begin, end - begin));
    Value group =
        rt.pair(case_sensitive ? items[begin].key : path.get(items[begin].item, args[2]), members);
    group.flags |= Value::kGroup;
    groups.push_back(group);
    begin = end;
  }
  return rt.list(Runtime::keep(groups));
}

// sum(value, attribute=None, start=0)
Value filter_sum(Runtime& rt, const Arguments& args) {
  const AttributePath path(rt, args[1]);
  Value sum = args.has(2) ? args[2] : Value::of_int(0);
  if (sum.is_string()) rt.fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items_of(rt, args[0])) {
    rt.step();
    sum = binary(rt, BinaryOp::kAdd, sum, path.get(item));
  }
  return sum;
}

constexpr Builtin kOrderFilters[] = {
    {"sort", filter_sort, 1, {"value", "reverse", "case_sensitive", "attribute"}},
    {"dictsort", filter_dictsort, 1, {"value", "case_sensitive", "by", "reverse"}},
    {"unique", filter_unique, 1, {"value", "case_sensitive", "attribute"}},
    {"min", filter_min, 1, {"value", "case_sensitive", "attribute"}},
    {"max", filter_max, 1, {"value", "case_sensitive", "attribute"}},
    {"groupby", filter_groupby, 2, {"value", "attribute", "default", "case_sensitive"}},
    {"sum", filter_sum, 1, {"iterable", "attribute", "start"}},
};

}  // namespace

std::span<const Builtin> order_filters() { return kOrderFilters; }

}  // namespace bl::jinja
