#include "toolcall/tool_set.h"

#include <functional>

#include "base/json.h"

namespace bl {
namespace {

constexpr int kMaxSchemaDepth = 32;

TypeSet type_of_value(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return TypeSet(TypeSet::kString);
    case Json::value_t::boolean:
      return TypeSet(TypeSet::kBoolean);
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return TypeSet(TypeSet::kInteger);
    case Json::value_t::number_float:
      return TypeSet(TypeSet::kNumber);
    case Json::value_t::null:
      return TypeSet(TypeSet::kNull);
    case Json::value_t::object:
      return TypeSet(TypeSet::kObject);
    case Json::value_t::array:
      return TypeSet(TypeSet::kArray);
    default:
      return TypeSet();
  }
}

const Json* member_of(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}

// Follows "$ref": "#/…" inside `root`; null where it leads nowhere.
const Json* resolve(const Json* schema, const Json* root) {
  for (int i = 0; i < kMaxSchemaDepth && schema != nullptr; ++i) {
    const Json* reference = member_of(*schema, "$ref");
    if (reference == nullptr || !reference->is_string()) return schema;
    const auto& path = reference->get_ref<const std::string&>();
    if (path.empty() || path.front() != '#') return nullptr;
    try {
      const Json::json_pointer pointer(path.substr(1));
      schema = root->contains(pointer) ? &root->at(pointer) : nullptr;
    } catch (const Json::exception&) {
      return nullptr;
    }
  }
  return nullptr;
}

TypeSet types_of(const Json* schema, const Json* root, int depth) {
  TypeSet types;
  schema = schema == nullptr || depth > kMaxSchemaDepth ? nullptr : resolve(schema, root);
  if (schema == nullptr) return types;
  if (const Json* type = member_of(*schema, "type")) {
    if (type->is_string()) types.add(TypeSet::named(type->get_ref<const std::string&>()));
    if (type->is_array()) {
      for (const Json& name : *type) {
        if (name.is_string()) types.add(TypeSet::named(name.get_ref<const std::string&>()));
      }
    }
    if (!types.empty()) return types;
  }
  if (const Json* value = member_of(*schema, "const")) return type_of_value(*value);
  if (const Json* values = member_of(*schema, "enum"); values != nullptr && values->is_array()) {
    for (const Json& value : *values) types.add(type_of_value(value));
    return types;
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const Json* choices = member_of(*schema, key);
    if (choices == nullptr || !choices->is_array()) continue;
    for (const Json& choice : *choices) types.add(types_of(&choice, root, depth + 1));
  }
  if (!types.empty()) return types;
  if (member_of(*schema, "properties") != nullptr) return TypeSet(TypeSet::kObject);
  if (member_of(*schema, "items") != nullptr) return TypeSet(TypeSet::kArray);
  return types;
}

// Looks for a part of a schema in the schema itself and in its alternatives.
const Json* find_part(const Json* schema, const Json* root, int depth,
                      const std::function<const Json*(const Json&)>& find) {
  schema = schema == nullptr || depth > kMaxSchemaDepth ? nullptr : resolve(schema, root);
  if (schema == nullptr) return nullptr;
  if (const Json* part = find(*schema)) return part;
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const Json* choices = member_of(*schema, key);
    if (choices == nullptr || !choices->is_array()) continue;
    for (const Json& choice : *choices) {
      if (const Json* part = find_part(&choice, root, depth + 1, find)) return part;
    }
  }
  return nullptr;
}

}  // namespace

TypeSet TypeSet::named(std::string_view name) {
  if (name == "string") return TypeSet(kString);
  if (name == "integer") return TypeSet(kInteger);
  if (name == "number") return TypeSet(kNumber);
  if (name == "boolean") return TypeSet(kBoolean);
  if (name == "null") return TypeSet(kNull);
  if (name == "object") return TypeSet(kObject);
  if (name == "array") return TypeSet(kArray);
  return TypeSet();
}

TypeSet SchemaView::types() const { return types_of(schema_, root_, 0); }

SchemaView SchemaView::property(std::string_view name) const {
  const std::string key(name);
  const auto find = [&](const Json& schema) -> const Json* {
    const Json* properties = member_of(schema, "properties");
    if (properties != nullptr) {
      if (const Json* part = member_of(*properties, key.c_str())) return part;
    }
    const Json* others = member_of(schema, "additionalProperties");
    return others != nullptr && others->is_object() ? others : nullptr;
  };
  return {find_part(schema_, root_, 0, find), root_};
}

SchemaView SchemaView::items() const {
  const auto find = [](const Json& schema) { return member_of(schema, "items"); };
  return {find_part(schema_, root_, 0, find), root_};
}

ToolSet::ToolSet() = default;
ToolSet::ToolSet(ToolSet&& other) noexcept = default;
ToolSet& ToolSet::operator=(ToolSet&& other) noexcept = default;
ToolSet::~ToolSet() = default;

ToolSet::ToolSet(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& entry : tools) {
    const Json* function = member_of(entry, "function");
    const Json& tool = function != nullptr && function->is_object() ? *function : entry;
    const Json* name = member_of(tool, "name");
    if (name == nullptr || !name->is_string()) continue;
    const Json* schema = member_of(tool, "parameters");
    if (schema == nullptr) schema = member_of(tool, "input_schema");
    tools_[name->get<std::string>()] =
        std::make_unique<Json>(schema == nullptr ? Json::object() : *schema);
  }
}

bool ToolSet::needs_nothing(std::string_view name) const {
  return offers(name) && has_required(name, {});
}

bool ToolSet::has_required(std::string_view name,
                           const std::map<std::string, int>& arguments) const {
  const auto tool = tools_.find(name);
  if (tool == tools_.end()) return true;
  const Json* required = member_of(*tool->second, "required");
  if (required == nullptr || !required->is_array()) return true;
  for (const Json& key : *required) {
    if (key.is_string() && arguments.count(key.get_ref<const std::string&>()) == 0) return false;
  }
  return true;
}

SchemaView ToolSet::parameters(std::string_view name) const {
  const auto tool = tools_.find(name);
  if (tool == tools_.end()) return {};
  return {tool->second.get(), tool->second.get()};
}

}  // namespace bl
