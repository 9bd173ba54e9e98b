// What schemas say about arrays and objects.

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "grammar/schema_logic.h"

namespace bl {

using Id = SchemaLogic::Id;

const OrderedJson* MemberList::find(const std::string& name) const {
  const auto found = std::find_if(named.begin(), named.end(),
                                  [&](const auto& member) { return member.first == name; });
  return found == named.end() ? nullptr : found->second;
}

Id SchemaLogic::array(ArrayAtom atom) {
  arrays_.push_back(std::move(atom));
  return expressions_.atom(static_cast<int>(arrays_.size()) - 1);
}

Id SchemaLogic::object_is(ObjectAtom atom) {
  objects_.push_back(std::move(atom));
  return expressions_.atom(static_cast<int>(objects_.size()) - 1);
}

const ItemList& SchemaLogic::items(const OrderedJson& schema) {
  const auto [found, added] = items_.try_emplace(&schema);
  ItemList& list = found->second;
  if (!added) return list;
  const auto add_first = [&](const std::string& key) {
    const OrderedJson& first = this->list(schema, key);
    for (std::size_t i = 0; i < first.size(); ++i) {
      list.first.push_back(document_.part_at(schema, first[i], fmt::format("{}/{}", key, i)));
    }
  };
  if (schema.contains(kItemsOfValue)) {
    add_first(kItemsOfValue);
    return list;
  }
  const auto rest = schema.find("items");
  if (schema.contains("prefixItems") && document_.since(SchemaDraft::k2020)) {
    add_first("prefixItems");
  }
  if (rest == schema.end()) return list;
  if (!rest->is_array()) {
    list.rest = document_.part(schema, "items");
  } else if (document_.until(SchemaDraft::k2019)) {
    add_first("items");
    list.rest = document_.part(schema, "additionalItems");
  } else {
    document_.refuse(schema, "has a list of items, which draft 2020-12 calls prefixItems");
  }
  return list;
}

Id SchemaLogic::read_array(const OrderedJson& schema, const std::string& key) {
  using What = ArrayAtom::What;
  if (key == "items" || key == kItemsOfValue || key == "prefixItems") {
    if (key == "prefixItems" && !document_.since(SchemaDraft::k2020)) return Expressions::kTrue;
    if (key == "items" && schema.contains("prefixItems") && document_.since(SchemaDraft::k2020)) {
      return Expressions::kTrue;  // it has been read together with prefixItems
    }
    items(schema);
    return array({.what = What::kItems, .schema = &schema});
  }
  if (key == "minItems") {
    const std::size_t fewest = count(schema, key);
    return fewest == 0 ? Expressions::kTrue : array({.what = What::kFewest, .count = fewest});
  }
  if (key == "maxItems") {
    return expressions_.negated(array({.what = What::kFewest, .count = count(schema, key) + 1}));
  }
  if (key == "uniqueItems") {
    const OrderedJson& value = schema[key];
    if (!value.is_boolean()) document_.refuse(schema, "has uniqueItems that is not true or false");
    return value.get<bool>() ? array({.what = What::kUnique, .schema = &schema})
                             : Expressions::kTrue;
  }
  if (key == "contains" && document_.since(SchemaDraft::k6)) return read_contains(schema);
  if (key == "unevaluatedItems" && document_.since(SchemaDraft::k2019)) {
    return unevaluated_items(schema);
  }
  return Expressions::kTrue;
}

Id SchemaLogic::read_contains(const OrderedJson& schema) {
  const OrderedJson* part = document_.part(schema, "contains");
  const bool counts = document_.since(SchemaDraft::k2019);
  const auto contains = [&](std::size_t number) {
    return array({.what = ArrayAtom::What::kContains,
                  .schema = &schema,
                  .count = number,
                  .claim = {part, true}});
  };
  const std::size_t fewest =
      counts && schema.contains("minContains") ? count(schema, "minContains") : 1;
  std::vector<Id> parts;
  if (fewest > 0) parts.push_back(contains(fewest));
  if (counts && schema.contains("maxContains")) {
    parts.push_back(expressions_.negated(contains(count(schema, "maxContains") + 1)));
  }
  return expressions_.all_of(std::move(parts));
}

// Only where no other schema beside it could describe items.
Id SchemaLogic::unevaluated_items(const OrderedJson& schema) {
  if (schema["unevaluatedItems"] == true) return Expressions::kTrue;
  for (const char* beside :
       {"$ref", "allOf", "anyOf", "oneOf", "if", "contains", "not", "dependentSchemas"}) {
    if (!schema.contains(beside)) continue;
    document_.refuse(schema,
                     "has unevaluatedItems beside {}, which is not supported: say what the "
                     "items are by items",
                     beside);
  }
  if (items(schema).rest != nullptr) return Expressions::kTrue;
  const std::size_t first = items(schema).first.size();
  OrderedJson made = OrderedJson::object();
  made[kItemsOfValue] = OrderedJson::array();
  const OrderedJson* kept = document_.keep(schema, std::move(made));
  ItemList list;
  list.first.assign(first, document_.keep(schema, true));
  list.rest = document_.part(schema, "unevaluatedItems");
  items_[kept] = std::move(list);
  return array({.what = ArrayAtom::What::kItems, .schema = kept});
}

Id SchemaLogic::negation_of_array_atom(int number) {
  using What = ArrayAtom::What;
  const ArrayAtom atom = array_atom(number);
  const auto unknown = [&] { return array({.what = What::kUnknown, .schema = atom.schema}); };
  switch (atom.what) {
    case What::kContains:
      if (atom.count > 1) return expressions_.negated(expressions_.atom(number));
      return array({.what = What::kAll,
                    .schema = atom.schema,
                    .claim = {atom.claim.schema, !atom.claim.holds}});
    case What::kAll:
      return array({.what = What::kContains,
                    .schema = atom.schema,
                    .count = 1,
                    .claim = {atom.claim.schema, !atom.claim.holds}});
    case What::kItems: {
      const ItemList& list = items(*atom.schema);
      std::vector<Id> parts;
      for (std::size_t i = 0; i < list.first.size(); ++i) {
        parts.push_back(array({.what = What::kAt,
                               .schema = atom.schema,
                               .count = i,
                               .claim = {list.first[i], false}}));
      }
      if (list.rest != nullptr && *list.rest == false) {
        parts.push_back(array({.what = What::kFewest, .count = list.first.size() + 1}));
      } else if (list.rest != nullptr && *list.rest != true) {
        parts.push_back(list.first.empty() ? array({.what = What::kContains,
                                                    .schema = atom.schema,
                                                    .count = 1,
                                                    .claim = {list.rest, false}})
                                           : unknown());
      }
      return expressions_.any_of(std::move(parts));
    }
    case What::kFewest:
      return expressions_.negated(expressions_.atom(number));
    case What::kUnique:
    case What::kAt:
    case What::kUnknown:
      break;
  }
  return unknown();
}

const MemberList& SchemaLogic::members(const OrderedJson& schema) {
  const auto [found, added] = members_.try_emplace(&schema);
  if (!added) return found->second;
  MemberList list;
  if (schema.contains("properties")) {
    for (const auto& [name, part] : object(schema, "properties").items()) {
      list.named.emplace_back(name, document_.part_at(schema, part, "properties/" + name));
    }
    list.closes = !list.named.empty() || (tool_parameters_ && &schema == &document_.root());
  }
  if (schema.contains("patternProperties")) {
    for (const auto& [regex, part] : object(schema, "patternProperties").items()) {
      list.patterns.emplace_back(pattern(schema, regex),
                                 document_.part_at(schema, part, "patternProperties/" + regex));
    }
  }
  list.others = document_.part(schema, "additionalProperties");
  if (list.others != nullptr) {
    list.closes = false;
    list.opens = *list.others != false;
  }
  members_[&schema] = std::move(list);
  return members_[&schema];
}

Id SchemaLogic::read_required(const OrderedJson& schema, const OrderedJson& names) {
  std::vector<Id> parts;
  for (const OrderedJson& name : names) {
    if (!name.is_string()) document_.refuse(schema, "requires something that is no string");
    parts.push_back(object_is({.what = ObjectAtom::What::kRequired, .name = name}));
  }
  return expressions_.all_of(std::move(parts));
}

Id SchemaLogic::read_object(const OrderedJson& schema, const std::string& key) {
  using What = ObjectAtom::What;
  if (key == "properties" || key == "patternProperties" || key == "additionalProperties") {
    // One atom for all three, where the first of them stands.
    for (const auto& [other, value] : schema.items()) {
      if (other == key) break;
      if (other == "properties" || other == "patternProperties" ||
          other == "additionalProperties") {
        return Expressions::kTrue;
      }
    }
    members(schema);
    return object_is({.what = What::kMembers, .schema = &schema});
  }
  if (key == "required") {
    if (schema[key].is_boolean()) return Expressions::kTrue;  // draft 3
    return read_required(schema, list(schema, key));
  }
  if (key == "minProperties") {
    const std::size_t fewest = count(schema, key);
    if (fewest == 0) return Expressions::kTrue;
    return object_is({.what = What::kFewest, .schema = &schema, .count = fewest});
  }
  if (key == "maxProperties") {
    return expressions_.negated(
        object_is({.what = What::kFewest, .schema = &schema, .count = count(schema, key) + 1}));
  }
  if (key == "propertyNames" && document_.since(SchemaDraft::k6)) {
    const OrderedJson* part = document_.part(schema, "propertyNames");
    if (*part == true) return Expressions::kTrue;
    return object_is({.what = What::kNames, .schema = &schema, .claim = {part, true}});
  }
  if (key == "unevaluatedProperties" && document_.since(SchemaDraft::k2019)) {
    const OrderedJson* part = document_.part(schema, key.c_str());
    return object_is({.what = What::kUnevaluated, .schema = &schema, .claim = {part, true}});
  }
  if (key == "dependencies" && !document_.until(SchemaDraft::k7)) return Expressions::kTrue;
  if ((key == "dependentRequired" || key == "dependentSchemas") &&
      !document_.since(SchemaDraft::k2019)) {
    return Expressions::kTrue;
  }
  if (key == "dependencies" || key == "dependentRequired" || key == "dependentSchemas") {
    return read_dependencies(schema, key);
  }
  return Expressions::kTrue;
}

// Either the member is absent, or it is there and so is what depends on it.
Id SchemaLogic::read_dependencies(const OrderedJson& schema, const std::string& key) {
  std::vector<Id> parts;
  for (const auto& [name, needed] : object(schema, key).items()) {
    const Id present = object_is({.what = ObjectAtom::What::kRequired, .name = name});
    Id then = Expressions::kTrue;
    if (needed.is_array() && key != "dependentSchemas") {
      then = read_required(schema, needed);
    } else if (needed.is_string() && key == "dependencies") {  // draft 3
      then = read_required(schema, OrderedJson::array({needed}));
    } else {
      then = expression(*document_.part_at(schema, needed, key + "/" + name), ValueKind::kObject);
    }
    if (then == Expressions::kTrue) continue;
    parts.push_back(
        expressions_.any_of({expressions_.negated(present), expressions_.all_of({present, then})}));
  }
  return expressions_.all_of(std::move(parts));
}

Id SchemaLogic::negation_of_object_atom(int number) {
  using What = ObjectAtom::What;
  const ObjectAtom atom = object_atom(number);
  if (atom.what == What::kRequired || atom.what == What::kFewest) {
    return expressions_.negated(expressions_.atom(number));
  }
  std::vector<Id> parts;
  if (atom.what == What::kMembers) {
    const MemberList& list = members(*atom.schema);
    for (const auto& [name, part] : list.named) {
      if (*part == true) continue;
      parts.push_back(object_is(
          {.what = What::kHas, .schema = atom.schema, .name = name, .claim = {part, false}}));
    }
    if (list.patterns.empty() && (list.others == nullptr || *list.others == true)) {
      return expressions_.any_of(std::move(parts));
    }
  }
  parts.push_back(object_is({.what = What::kUnknown, .schema = atom.schema}));
  return expressions_.any_of(std::move(parts));
}

}  // namespace bl
