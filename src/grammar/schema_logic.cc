#include "grammar/schema_logic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

using Id = SchemaLogic::Id;

constexpr std::array<std::pair<std::string_view, ValueKind>, 8> kTypes{{
    {"null", ValueKind::kNull},
    {"boolean", ValueKind::kFalse},
    {"boolean", ValueKind::kTrue},
    {"number", ValueKind::kNumber},
    {"integer", ValueKind::kNumber},
    {"string", ValueKind::kString},
    {"array", ValueKind::kArray},
    {"object", ValueKind::kObject},
}};

ValueKind kind_of(const OrderedJson& value) {
  if (value.is_boolean()) return value.get<bool>() ? ValueKind::kTrue : ValueKind::kFalse;
  if (value.is_number()) return ValueKind::kNumber;
  if (value.is_string()) return ValueKind::kString;
  if (value.is_array()) return ValueKind::kArray;
  return value.is_object() ? ValueKind::kObject : ValueKind::kNull;
}

}  // namespace

Id SchemaLogic::expression(const Claim& claim, ValueKind kind) {
  const Id id = expression(*claim.schema, kind);
  return claim.holds ? id : expressions_.negated(id);
}

Id SchemaLogic::expression(const OrderedJson& schema, ValueKind kind) {
  if (schema.is_boolean()) return expressions_.constant(schema.get<bool>());
  const std::pair key{&schema, kind};
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  if (!open_.insert(key).second) {
    document_.refuse(schema, "refers to itself without end");
  }
  constexpr std::size_t kMostDepth = 500;
  if (open_.size() > kMostDepth) document_.refuse(schema, "is nested too deep in references");
  const Id id = read(schema, kind);
  open_.erase(key);
  known_[key] = id;
  return id;
}

// Keywords are read in the order in which they stand, because members keep that order.
Id SchemaLogic::read(const OrderedJson& schema, ValueKind kind) {
  std::vector<Id> parts;
  if (const auto reference = schema.find("$ref"); reference != schema.end()) {
    if (!reference->is_string()) document_.refuse(schema, "has a $ref that is no string");
    const OrderedJson* target = document_.target(schema, reference->get<std::string>());
    const Id id = expression(*target, kind);
    if (document_.reference_stands_alone()) return id;
  }
  for (const auto& [key, value] : schema.items()) {
    parts.push_back(read_keyword(schema, key, kind));
    if (parts.back() == Expressions::kFalse) return Expressions::kFalse;
  }
  return expressions_.all_of(std::move(parts));
}

Id SchemaLogic::read_keyword(const OrderedJson& schema, const std::string& key, ValueKind kind) {
  if (key == "type") return type_allows(schema, kind);
  if (key == "enum") return equals_one_of(schema, list(schema, key), kind);
  if (key == "const") {
    if (!document_.since(SchemaDraft::k6)) return Expressions::kTrue;
    return equals(schema, schema["const"], kind);
  }
  if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef" || key == "allOf" ||
      key == "anyOf" || key == "oneOf" || key == "not" || key == "if") {
    return read_combination(schema, key, kind);
  }
  switch (kind) {
    case ValueKind::kNumber:
      return read_number(schema, key);
    case ValueKind::kString:
      return read_string(schema, key);
    case ValueKind::kArray:
      return read_array(schema, key);
    case ValueKind::kObject:
      return read_object(schema, key);
    default:
      return Expressions::kTrue;
  }
}

Id SchemaLogic::read_combination(const OrderedJson& schema, const std::string& key,
                                 ValueKind kind) {
  if (key == "$ref") {
    return expression(*document_.target(schema, schema[key].get<std::string>()), kind);
  }
  if (key == "$dynamicRef" || key == "$recursiveRef") {
    document_.refuse(schema, "has {}, which is not supported: use $ref", key);
  }
  if (key == "not") {
    return expressions_.negated(expression(*document_.part(schema, "not"), kind));
  }
  if (key == "if") {
    if (!document_.since(SchemaDraft::k7)) return Expressions::kTrue;
    const Id condition = expression(*document_.part(schema, "if"), kind);
    const auto branch = [&](const char* name) {
      const OrderedJson* part = document_.part(schema, name);
      return part == nullptr ? Expressions::kTrue : expression(*part, kind);
    };
    const Id then = branch("then");
    const Id otherwise = branch("else");
    if (then == otherwise && !document_.has_unevaluated()) return then;
    return expressions_.any_of({expressions_.all_of({condition, then}),
                                expressions_.all_of({expressions_.negated(condition), otherwise})});
  }
  const OrderedJson& branches = list(schema, key);
  if (branches.empty()) document_.refuse(schema, "has an empty {}", key);
  std::vector<Id> parts;
  for (std::size_t i = 0; i < branches.size(); ++i) {
    const OrderedJson* part = document_.part_at(schema, branches[i], fmt::format("{}/{}", key, i));
    parts.push_back(expression(*part, kind));
  }
  if (key == "allOf") return expressions_.all_of(std::move(parts));
  return key == "anyOf" ? expressions_.any_of(std::move(parts))
                        : expressions_.one_of(std::move(parts));
}

Id SchemaLogic::type_allows(const OrderedJson& schema, ValueKind kind) {
  const OrderedJson& type = schema["type"];
  const OrderedJson names = type.is_array() ? type : OrderedJson::array({type});
  if (names.empty()) document_.refuse(schema, "has an empty list of types");
  std::vector<Id> allowed;
  for (const OrderedJson& name : names) {
    bool known = false;
    for (const auto& [text, of_kind] : kTypes) {
      if (!name.is_string() || name.get_ref<const std::string&>() != text) continue;
      known = true;
      if (of_kind != kind) continue;
      allowed.push_back(text == "integer" ? number({.what = NumberAtom::What::kWhole})
                                          : Expressions::kTrue);
    }
    if (!known) {
      document_.refuse(schema,
                       "has the unknown type {}: should be null, boolean, integer, number, string, "
                       "array or object",
                       json_text(name).substr(0, 60));
    }
  }
  return expressions_.any_of(std::move(allowed));
}

Id SchemaLogic::equals_one_of(const OrderedJson& schema, const OrderedJson& values,
                              ValueKind kind) {
  if (kind != ValueKind::kString) {
    std::vector<Id> parts;
    for (const OrderedJson& value : values) parts.push_back(equals(schema, value, kind));
    return expressions_.any_of(std::move(parts));
  }
  std::vector<std::string> texts;
  OrderedJson name = OrderedJson::array();
  for (const OrderedJson& value : values) {
    if (!value.is_string()) continue;
    texts.push_back(value.get<std::string>());
    name.push_back(value);
  }
  if (texts.empty()) return Expressions::kFalse;
  return string("one of " + json_text(name), {.make = [texts] { return one_of_texts(texts); }});
}

Id SchemaLogic::equals(const OrderedJson& schema, const OrderedJson& value, ValueKind kind) {
  if (kind_of(value) != kind) return Expressions::kFalse;
  switch (kind) {
    case ValueKind::kNumber:
      return number({.what = NumberAtom::What::kEquals, .value = decimal_of(value)});
    case ValueKind::kString:
      return equals_one_of(schema, OrderedJson::array({value}), kind);
    case ValueKind::kArray:
    case ValueKind::kObject:
      return expression(*schema_of_value(schema, value), kind);
    default:
      return Expressions::kTrue;
  }
}

// Describes a list or an object by a schema that only it satisfies.
const OrderedJson* SchemaLogic::schema_of_value(const OrderedJson& schema,
                                                const OrderedJson& value) {
  OrderedJson parts = value.is_array() ? OrderedJson::array() : OrderedJson::object();
  OrderedJson names = OrderedJson::array();
  for (const auto& [key, part] : value.items()) {
    OrderedJson one = {{"const", part}};
    if (value.is_array()) {
      parts.push_back(std::move(one));
    } else {
      parts[key] = std::move(one);
      names.push_back(key);
    }
  }
  OrderedJson made;
  if (value.is_array()) {
    made = {{kItemsOfValue, std::move(parts)}, {"minItems", value.size()}};
    made["maxItems"] = value.size();
  } else {
    made = {{"properties", std::move(parts)}, {"required", std::move(names)}};
    made["additionalProperties"] = false;
  }
  return document_.keep(schema, std::move(made));
}

std::size_t SchemaLogic::count(const OrderedJson& schema, const std::string& key) const {
  const OrderedJson& value = schema[key];
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (number >= 0 && number == std::floor(number)) {
      return number < 1e15 ? static_cast<std::size_t>(number) : std::size_t{1000000000000000};
    }
  }
  document_.refuse(schema, "has {} {}, which should be a whole number from 0", key,
                   json_text(value).substr(0, 60));
}

const OrderedJson& SchemaLogic::list(const OrderedJson& schema, const std::string& key) const {
  if (!schema[key].is_array()) document_.refuse(schema, "has a {} that is no list", key);
  return schema[key];
}

const OrderedJson& SchemaLogic::object(const OrderedJson& schema, const std::string& key) const {
  if (!schema[key].is_object()) document_.refuse(schema, "has {} that are no object", key);
  return schema[key];
}

std::set<const OrderedJson*> SchemaLogic::in_place(const OrderedJson& schema) {
  std::set<const OrderedJson*> found;
  std::vector<const OrderedJson*> open{&schema};
  while (!open.empty()) {
    const OrderedJson* at = open.back();
    open.pop_back();
    if (!at->is_object() || !found.insert(at).second) continue;
    if (at->contains("$ref")) open.push_back(document_.target(*at, (*at)["$ref"]));
    for (const char* key : {"if", "then", "else"}) {
      if (const OrderedJson* part = document_.part(*at, key)) open.push_back(part);
    }
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
      if (!at->contains(key)) continue;
      const OrderedJson& branches = (*at)[key];
      for (std::size_t i = 0; i < branches.size(); ++i) {
        open.push_back(document_.part_at(*at, branches[i], fmt::format("{}/{}", key, i)));
      }
    }
    if (at->contains("dependentSchemas")) {
      for (const auto& [name, part] : (*at)["dependentSchemas"].items()) {
        open.push_back(document_.part_at(*at, part, "dependentSchemas/" + name));
      }
    }
  }
  return found;
}

}  // namespace bl
