#include "api/argument_form.h"

#include <algorithm>
#include <array>
#include <utility>

#include "toolcall/tool_set.h"

namespace bl::openai {
namespace {

constexpr int kMaxDepth = 6;  // of values that are not written as JSON; below, anything goes

// The schema that a reference within `root` leads to; a schema without reference is itself.
const OrderedJson& followed(const OrderedJson& schema, const OrderedJson& root) {
  const OrderedJson* at = &schema;
  for (int steps = 0; steps < 8 && at->is_object() && at->contains("$ref"); ++steps) {
    const OrderedJson& reference = (*at)["$ref"];
    if (!reference.is_string()) return *at;
    const auto& text = reference.get_ref<const std::string&>();
    if (!text.starts_with('#')) return *at;
    try {
      at = &root.at(OrderedJson::json_pointer(text.substr(1)));
    } catch (const OrderedJson::exception&) {
      return *at;  // the whole schema is refused elsewhere
    }
  }
  return *at;
}

// A part of a schema as a document of its own: with what its references lead into.
OrderedJson standing_alone(const OrderedJson& part, const OrderedJson& root) {
  OrderedJson whole = part;
  if (!whole.is_object() || !root.is_object()) return whole;
  for (const char* key : {"$schema", "$defs", "definitions"}) {
    if (root.contains(key) && !whole.contains(key)) whole[key] = root[key];
  }
  return whole;
}

TypeSet types_of(const OrderedJson& schema, const OrderedJson& root) {
  const Json whole = parse_json(json_text(root), "tools");
  const Json part = parse_json(json_text(schema), "tools");
  return SchemaView(&part, &whole).types();
}

OrderedJson fixed(const std::string& text) { return {{"type", "const_string"}, {"value", text}}; }

}  // namespace

OrderedJson ArgumentForm::arguments(const OrderedJson& schema) const {
  static const OrderedJson kNone = OrderedJson::parse(R"({"type":"object","properties":{}})");
  const OrderedJson& whole = schema.is_null() ? kNone : schema;
  switch (syntax_.form) {
    case ArgumentsForm::kParameters:
      return parameters(whole);
    case ArgumentsForm::kPython:
    case ArgumentsForm::kBraces:
      return object({whole, whole}, true);
    case ArgumentsForm::kJson:
      break;
  }
  OrderedJson format = TagFormat::schema(whole);
  format["tool_parameters"] = true;
  return format;
}

std::vector<ArgumentForm::Member> ArgumentForm::members_of(const OrderedJson& schema,
                                                           const OrderedJson& root) {
  std::vector<Member> members;
  const OrderedJson& object = followed(schema, root);
  if (!object.is_object() || !object.contains("properties")) return members;
  if (!object["properties"].is_object()) return members;
  std::vector<std::string> required;
  if (object.contains("required") && object["required"].is_array()) {
    for (const OrderedJson& name : object["required"]) {
      if (name.is_string()) required.push_back(name.get<std::string>());
    }
  }
  for (const auto& [name, part] : object["properties"].items()) {
    const bool needed = std::find(required.begin(), required.end(), name) != required.end();
    members.push_back({name, part, needed});
  }
  return members;
}

OrderedJson ArgumentForm::parameters(const OrderedJson& schema) const {
  std::vector<OrderedJson> elements;
  for (const Member& member : members_of(schema, schema)) {
    OrderedJson one = parameter(member, schema);
    elements.push_back(member.required ? std::move(one) : TagFormat::optional(std::move(one)));
  }
  return TagFormat::sequence(std::move(elements));
}

OrderedJson ArgumentForm::parameter(const Member& member, const OrderedJson& root) const {
  const TypeSet types = types_of(member.schema, root);
  const bool is_text = types.only_string() || types.has(TypeSet::kString);
  const auto filled = [&](std::string text, std::string_view mark, std::string_view value) {
    const std::size_t at = text.find(mark);
    return at == text.npos ? text : text.replace(at, mark.size(), value);
  };
  std::string type = "string";
  if (!is_text) {
    for (const auto& [bit, name] :
         {std::pair(TypeSet::kObject, "object"), std::pair(TypeSet::kArray, "array"),
          std::pair(TypeSet::kBoolean, "boolean"), std::pair(TypeSet::kNull, "null"),
          std::pair(TypeSet::kInteger, "number"), std::pair(TypeSet::kNumber, "number")}) {
      if (types.has(bit)) type = name;
    }
  }
  std::string before = filled(syntax_.before_value, "{is_string}", is_text ? "true" : "false");
  before = filled(std::move(before), "{json_type}", type);
  std::vector<OrderedJson> parts{tags_.literal(syntax_.before_key + member.name + before)};
  if (is_text) {
    parts.push_back(bare_text(member, root));
  } else {
    parts.push_back(TagFormat::schema(standing_alone(member.schema, root)));
    parts.push_back(tags_.literal(filled(syntax_.after_value, "{key}", member.name)));
  }
  return TagFormat::sequence(std::move(parts));
}

// A bare text and what follows it. It ends at the first closing tag, since readers see it there.
OrderedJson ArgumentForm::bare_text(const Member& member, const OrderedJson& root) const {
  std::string after = syntax_.after_value;
  if (const std::size_t at = after.find("{key}"); at != after.npos) {
    after.replace(at, 5, member.name);
  }
  const OrderedJson& schema = followed(member.schema, root);
  std::vector<OrderedJson> choices;
  if (schema.is_object() && schema.contains("enum") && schema["enum"].is_array()) {
    for (const OrderedJson& one : schema["enum"]) {
      choices.push_back(tags_.literal(one.is_string() ? one.get<std::string>() : json_text(one)));
    }
  }
  if (!choices.empty()) {
    return TagFormat::sequence({TagFormat::any_of(std::move(choices)), tags_.literal(after)});
  }
  const std::string close = format_.parameters.empty() ? after : format_.parameters.front().close;
  const std::size_t at = after.find(close);
  if (at == after.npos) return tags_.until({after});
  return TagFormat::sequence(
      {tags_.until({close}), tags_.literal(after.substr(at + close.size()))});
}

OrderedJson ArgumentForm::value(const Place& place) const {
  const OrderedJson& schema = followed(place.schema, place.root);
  const Place here{schema, place.root, place.depth + 1};
  constexpr std::array kAny{"string", "number", "boolean", "null"};
  std::vector<OrderedJson> choices;
  if (schema.is_object() && here.depth <= kMaxDepth) {
    if (schema.contains("const")) return constant(schema["const"]);
    if (schema.contains("enum") && schema["enum"].is_array()) {
      for (const OrderedJson& one : schema["enum"]) choices.push_back(constant(one));
      if (!choices.empty()) return TagFormat::any_of(std::move(choices));
    }
    for (const char* key : {"anyOf", "oneOf"}) {
      if (!schema.contains(key) || !schema[key].is_array()) continue;
      for (const OrderedJson& one : schema[key]) {
        choices.push_back(value({one, place.root, here.depth}));
      }
    }
    if (!choices.empty()) return TagFormat::any_of(std::move(choices));
    const OrderedJson type = schema.value("type", OrderedJson());
    if (type.is_string()) return value_of_type(type.get<std::string>(), here);
    if (type.is_array()) {
      for (const OrderedJson& one : type) {
        if (one.is_string()) choices.push_back(value_of_type(one.get<std::string>(), here));
      }
      if (!choices.empty()) return TagFormat::any_of(std::move(choices));
    }
    if (schema.contains("properties")) return value_of_type("object", here);
    if (schema.contains("items")) return value_of_type("array", here);
  }
  static const OrderedJson kNothing = OrderedJson::object();
  for (const char* type : kAny) {
    choices.push_back(value_of_type(type, {kNothing, kNothing, kMaxDepth}));
  }
  return TagFormat::any_of(std::move(choices));
}

OrderedJson ArgumentForm::value_of_type(const std::string& type, const Place& place) const {
  if (type == "boolean") return TagFormat::any_of({constant(true), constant(false)});
  if (type == "null") return constant(nullptr);
  if (type == "array") return list(place);
  if (type == "object") return object(place, false);
  if (type != "integer" && type != "number") return text_value(place);
  OrderedJson number = standing_alone(place.schema, place.root);
  number["type"] = type;
  return TagFormat::schema(std::move(number));
}

std::string ArgumentForm::written(const OrderedJson& value) const {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return is_python() ? json_text(value)
                       : syntax_.string_delimiter + text + syntax_.string_delimiter;
  }
  if (is_python() && value.is_null()) return "None";
  if (is_python() && value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return json_text(value);
}

OrderedJson ArgumentForm::constant(const OrderedJson& value) const {
  return tags_.literal(written(value));
}

OrderedJson ArgumentForm::text_value(const Place& place) const {
  if (!is_python()) {
    return TagFormat::sequence(
        {tags_.literal(syntax_.string_delimiter), tags_.until({syntax_.string_delimiter})});
  }
  constexpr std::array kBounds{"minLength", "maxLength", "pattern", "format"};
  for (const char* key : kBounds) {
    if (!place.schema.contains(key)) continue;
    OrderedJson text = standing_alone(place.schema, place.root);
    text["type"] = "string";
    return TagFormat::schema(std::move(text));
  }
  // Python knows no escape of the slash, which JSON has.
  return TagFormat::regex(R"re("([^"\\\n\r]|\\["\\nrt])*")re");
}

OrderedJson ArgumentForm::list(const Place& place) const {
  static const OrderedJson kAnything = OrderedJson::object();
  const bool has_items = place.schema.contains("items");
  const OrderedJson item =
      value({has_items ? place.schema["items"] : kAnything, place.root, place.depth});
  const std::string between = is_python() ? ", " : ",";
  return TagFormat::sequence(
      {fixed("["),
       TagFormat::optional(TagFormat::sequence(
           {item, TagFormat::star(TagFormat::sequence({fixed(between), item}))})),
       fixed("]")});
}

// Members in the order of the schema, those that are required first. A call in Python has names
// without quotation marks and nothing around its members.
OrderedJson ArgumentForm::object(const Place& place, bool is_call) const {
  const bool bare = is_call && is_python();
  const std::string between = is_python() ? ", " : ",";
  std::vector<OrderedJson> required;
  std::vector<OrderedJson> others;
  for (const Member& member : members_of(place.schema, place.root)) {
    std::string key = member.name + (bare ? "=" : ":");
    if (is_python() && !bare) key = json_text(OrderedJson(member.name)) + ": ";
    OrderedJson one =
        TagFormat::sequence({tags_.literal(key), value({member.schema, place.root, place.depth})});
    (member.required ? required : others).push_back(std::move(one));
  }
  const auto behind = [&](const OrderedJson& one) {
    return TagFormat::sequence({fixed(between), one});
  };
  std::vector<OrderedJson> elements;
  for (const OrderedJson& one : required) {
    elements.push_back(elements.empty() ? one : behind(one));
  }
  if (!required.empty()) {
    for (const OrderedJson& one : others) elements.push_back(TagFormat::optional(behind(one)));
  } else if (!others.empty()) {
    // The first one that is there has no comma before it.
    std::vector<OrderedJson> beginnings;
    for (std::size_t first = 0; first < others.size(); ++first) {
      std::vector<OrderedJson> row{others[first]};
      for (std::size_t i = first + 1; i < others.size(); ++i) {
        row.push_back(TagFormat::optional(behind(others[i])));
      }
      beginnings.push_back(TagFormat::sequence(std::move(row)));
    }
    elements.push_back(TagFormat::optional(TagFormat::any_of(std::move(beginnings))));
  }
  if (bare) return TagFormat::sequence(std::move(elements));
  elements.insert(elements.begin(), fixed("{"));
  elements.push_back(fixed("}"));
  return TagFormat::sequence(std::move(elements));
}

}  // namespace bl::openai
