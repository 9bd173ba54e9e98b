// Access to attributes, items and slices.

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/big_number.h"
#include "text/jinja/builtin.h"
#include "text/jinja/dict.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/scope.h"

namespace bl::jinja {
namespace {

Value bound_method(Runtime& rt, const Builtin& method, const Value& self) {
  Value value;
  value.kind = Kind::kFunction;
  value.depth = rt.deeper(self.depth);
  value.function = rt.arena.make<Function>(&method, self);
  return value;
}

// Returns an attribute that holds a value instead of a method; kMissing if there is none.
Value plain_attribute(Runtime& rt, const Value& object, std::string_view name) {
  switch (object.kind) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
      if (name == "real" || name == "numerator") return unary(rt, UnaryOp::kPlus, object);
      if (name == "imag") return Value::of_int(0);
      if (name == "denominator") return Value::of_int(1);
      return {};
    case Kind::kFloat:
      if (name == "real") return object;
      if (name == "imag") return Value::of_float(0.0);
      return {};
    case Kind::kTuple:
      if ((object.flags & Value::kGroup) == 0) return {};
      if (name == "grouper") return object.items[0];
      if (name == "list") return object.items[1];
      return {};
    case Kind::kRange:
      if (name == "start") return Value::of_int(object.range->start);
      if (name == "step") return Value::of_int(object.range->step);
      if (name == "stop") return Value::of_int(object.range->stop);
      return {};
    case Kind::kLoop:
      return object.loop->attribute(name);
    case Kind::kNamespace: {
      const Value* found = object.space->find(name);
      return found != nullptr ? *found : Value{};
    }
    case Kind::kCycler:
      if (name == "current") return object.cycler->items[object.cycler->position];
      if (name == "pos") return Value::of_int(static_cast<std::int64_t>(object.cycler->position));
      if (name == "items") return rt.tuple(object.cycler->items);
      return {};
    case Kind::kJoiner:
      return name == "used" ? Value::boolean(object.joiner->used) : Value{};
    case Kind::kMacro: {
      const MacroStatement& macro = *object.macro->definition;
      if (name == "name") return Value::string(macro.text_name);
      if (name == "arguments") {
        ValueVector names = rt.vector();
        for (const Parameter& parameter : macro.parameters) {
          names.push_back(Value::string(parameter.text_name));
        }
        return rt.tuple(Runtime::keep(names));
      }
      if (name == "catch_kwargs") return Value::boolean(macro.takes_kwargs);
      if (name == "catch_varargs") return Value::boolean(macro.takes_varargs);
      if (name == "caller") return Value::boolean(macro.takes_caller);
      return {};
    }
    default:
      return {};
  }
}

Value unsafe_attribute(Runtime& rt, const Value& object, std::string_view name) {
  return rt.undefined(rt.arena.copy(
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object))));
}

// Whether this is a name that every Python object answers to; the sandbox refuses all of them.
bool is_python_internal(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

Value index_sequence(Runtime& rt, const Value& object, std::int64_t index) {
  const auto size = static_cast<std::int64_t>(*length_of(object));
  if (index < 0) index += size;
  if (index < 0 || index >= size) return {};
  const auto at = static_cast<std::size_t>(index);
  if (object.is_sequence()) return object.items[at];
  if (object.is(Kind::kRange)) return object.range->at(index);
  const std::string_view text = object.str();
  if (static_cast<std::size_t>(size) == text.size()) {
    return Value::string(text.substr(at, 1)).as_markup(object.is_markup());
  }
  rt.scan(at);
  return Value::string(code_points(text, at, at + 1)).as_markup(object.is_markup());
}

// Returns an item, or kMissing where Python raises TypeError or LookupError.
Value own_item(Runtime& rt, const Value& object, const Value& index) {
  switch (object.kind) {
    case Kind::kDict: {
      if (index.is(Kind::kList) || index.is(Kind::kDict)) return {};
      const Value* found =
          index.is_string() ? find(*object.dict, index.str()) : find(rt, *object.dict, index);
      return found != nullptr ? *found : Value{};
    }
    case Kind::kString:
      rt.scan(object.size);
      [[fallthrough]];
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kRange:
      return index.is_int64() ? index_sequence(rt, object, index.integer) : Value{};
    default:
      return {};
  }
}

struct Bounds {
  std::int64_t start, stop, step;
};

// Computes what slice.indices() does in Python.
Bounds slice_bounds(Runtime& rt, const SliceParts& parts, std::int64_t size) {
  const auto part = [&rt](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    // An index beyond 64 bits is beyond every end.
    if (value.is(Kind::kBigInt)) {
      return value.big->negative ? INT64_MIN / 4 : INT64_MAX / 4;
    }
    return std::clamp(to_index(rt, value, "a slice index"), INT64_MIN / 4, INT64_MAX / 4);
  };
  Bounds bounds{0, 0, part(parts.step, 1)};
  if (bounds.step == 0) rt.fail("slice step cannot be zero");
  const bool forward = bounds.step > 0;
  const std::int64_t lowest = forward ? 0 : -1;
  const std::int64_t highest = forward ? size : size - 1;
  const auto clamp = [&](std::int64_t index) {
    return std::clamp(index < 0 ? index + size : index, lowest, highest);
  };
  bounds.start = parts.start.is_none() ? (forward ? lowest : highest) : clamp(part(parts.start, 0));
  bounds.stop = parts.stop.is_none() ? (forward ? highest : lowest) : clamp(part(parts.stop, 0));
  return bounds;
}

std::int64_t steps_in(const Bounds& b) {
  if (b.step > 0) return b.start < b.stop ? (b.stop - b.start - 1) / b.step + 1 : 0;
  return b.stop < b.start ? (b.start - b.stop - 1) / -b.step + 1 : 0;
}

Value slice_text(Runtime& rt, const Value& object, const Bounds& bounds, std::size_t length) {
  const std::string_view text = object.str();
  if (bounds.step == 1) {
    const auto begin = static_cast<std::size_t>(bounds.start);
    const auto end = static_cast<std::size_t>(std::max(bounds.start, bounds.stop));
    const std::string_view part =
        length == text.size() ? text.substr(begin, end - begin) : code_points(text, begin, end);
    return Value::string(part).as_markup(object.is_markup());
  }
  // The offsets of all code points make every step direct, whatever the stride.
  std::vector<std::uint32_t> offsets;
  offsets.reserve(length + 1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_continuation(text[i])) offsets.push_back(static_cast<std::uint32_t>(i));
  }
  offsets.push_back(static_cast<std::uint32_t>(text.size()));
  std::string out;
  const std::int64_t count = steps_in(bounds);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(bounds.start + i * bounds.step);
    out += text.substr(offsets[at], offsets[at + 1] - offsets[at]);
  }
  return rt.string(out).as_markup(object.is_markup());
}

}  // namespace

Value Runtime::undefined(const Value& object, const Value& name) {
  Value value;
  value.kind = Kind::kUndefined;
  value.undefined = arena.make<UndefinedInfo>(std::string_view{}, type_name(object), name);
  return value;
}

Value own_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (is_python_internal(name)) return unsafe_attribute(rt, object, name);
  const Value plain = plain_attribute(rt, object, name);
  if (!plain.missing()) return plain;
  if (const Builtin* method = find_method(object, name)) return bound_method(rt, *method, object);
  if (is_refused_method(object, name)) return unsafe_attribute(rt, object, name);
  return {};
}

Value get_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(rt, object);
  const Value own = own_attribute(rt, object, name);
  if (!own.missing()) return own;
  if (object.is(Kind::kDict)) {
    if (const Value* found = find(*object.dict, name)) return *found;
  }
  return rt.undefined(object, Value::string(name));
}

Value get_item(Runtime& rt, const Value& object, const Value& index) {
  if (object.is_undefined()) fail_undefined(rt, object);
  const Value item = own_item(rt, object, index);
  if (!item.missing()) return item;
  if (index.is_string()) {
    const Value own = own_attribute(rt, object, index.str());
    if (!own.missing()) return own;
  }
  return rt.undefined(object, index);
}

Value get_slice(Runtime& rt, const Value& object, const SliceParts& parts) {
  if (object.is_undefined()) fail_undefined(rt, object);
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) {
    rt.fail("'{}' object cannot be sliced", type_name(object));
  }
  if (object.is_string()) rt.scan(object.size);
  const std::size_t length = *length_of(object);
  for (const Value* part : {&parts.start, &parts.stop, &parts.step}) {
    if (!part->is_none() && !part->is_integer()) rt.fail("slice indices must be integers or None");
  }
  const Bounds bounds = slice_bounds(rt, parts, static_cast<std::int64_t>(length));
  const std::int64_t count = steps_in(bounds);
  if (object.is_string()) return slice_text(rt, object, bounds, length);
  if (object.is(Kind::kRange)) {
    Value value = object;
    value.range = rt.arena.make<Range>(object.range->start + bounds.start * object.range->step,
                                       object.range->start + bounds.stop * object.range->step,
                                       object.range->step * bounds.step, count);
    return value;
  }
  std::span<const Value> items;
  if (bounds.step == 1) {
    items = object.list().subspan(static_cast<std::size_t>(bounds.start),
                                  static_cast<std::size_t>(count));
  } else {
    rt.step(count);
    auto* out = rt.arena.array<Value>(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) out[i] = object.items[bounds.start + i * bounds.step];
    items = {out, static_cast<std::size_t>(count)};
  }
  return object.is(Kind::kList) ? rt.list(items) : rt.tuple(items);
}

}  // namespace bl::jinja
