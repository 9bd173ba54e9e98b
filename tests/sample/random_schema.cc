#include "sample/random_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace bl::test {
namespace {

Json random_object(std::mt19937& random, int depth) {
  static const char* const kNames[] = {"id", "name", "age", "ab", "the", "x y", "\xc3\xa9"};
  Json properties = Json::object();
  Json required = Json::array();
  for (const char* name : kNames) {
    if (random() % 3 != 0) continue;
    properties[name] = random_schema(random, depth + 1);
    if (random() % 2 == 0) required.push_back(name);
  }
  return {{"type", "object"}, {"properties", properties}, {"required", required}};
}

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string of_object(const Json& schema, const Json& value) {
  if (!value.is_object()) return "no object";
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return "lacks " + name.dump();
  }
  for (const auto& [name, member] : value.items()) {
    const Json properties = schema.value("properties", Json::object());
    if (properties.empty()) continue;  // nothing is described, so anything may be there
    if (!properties.contains(name)) return "has " + name;
    const std::string wrong = violation(properties[name], member);
    if (!wrong.empty()) return name + ": " + wrong;
  }
  return "";
}

std::string of_array(const Json& schema, const Json& value) {
  if (!value.is_array()) return "no array";
  if (value.size() < schema.value("minItems", 0u)) return "too few items";
  if (value.size() > schema.value("maxItems", 1000u)) return "too many items";
  for (const Json& item : value) {
    const std::string wrong = violation(schema["items"], item);
    if (!wrong.empty()) return "item: " + wrong;
  }
  return "";
}

}  // namespace

Json random_schema(std::mt19937& random, int depth) {
  switch (random() % (depth < 3 ? 9 : 6)) {
    case 0:
      return {{"type", "boolean"}};
    case 1: {
      if (random() % 2 == 0) return {{"type", "integer"}};
      const int low = static_cast<int>(random() % 200) - 100;
      return {{"type", "integer"},
              {"minimum", low},
              {"maximum", low + static_cast<int>(random() % 50)}};
    }
    case 2:
      return {{"type", "number"}};
    case 3: {
      if (random() % 2 == 0) return {{"type", "string"}};
      const int shortest = static_cast<int>(random() % 3);
      return {{"type", "string"},
              {"minLength", shortest},
              {"maxLength", shortest + static_cast<int>(random() % 5)}};
    }
    case 4:
      return {{"enum", {"ab", 12, nullptr, "a\"b", true}}};
    case 5:
      return {{"const", random() % 2 == 0 ? Json("the") : Json(-1)}};
    case 6:
      return {{"anyOf", {random_schema(random, depth + 1), random_schema(random, depth + 1)}}};
    case 7: {
      const int fewest = static_cast<int>(random() % 3);
      return {{"type", "array"},
              {"items", random_schema(random, depth + 1)},
              {"minItems", fewest},
              {"maxItems", fewest + static_cast<int>(random() % 3)}};
    }
    default:
      return random_object(random, depth);
  }
}

std::string violation(const Json& schema, const Json& value) {
  if (schema.contains("const")) return value == schema["const"] ? "" : "not the constant";
  if (schema.contains("enum")) {
    for (const Json& one : schema["enum"]) {
      if (one == value) return "";
    }
    return "not of the enum";
  }
  if (schema.contains("anyOf")) {
    for (const Json& one : schema["anyOf"]) {
      if (violation(one, value).empty()) return "";
    }
    return "none of anyOf";
  }
  const std::string type = schema["type"];
  if (type == "object") return of_object(schema, value);
  if (type == "array") return of_array(schema, value);
  if (type == "boolean") return value.is_boolean() ? "" : "no boolean";
  if (type == "number") return value.is_number() ? "" : "no number";
  if (type == "integer") {
    if (!value.is_number()) return "no integer";
    const double number = value.get<double>();
    if (number != std::floor(number)) return "no whole number";
    if (number < schema.value("minimum", -1e300)) return "too small";
    return number > schema.value("maximum", 1e300) ? "too large" : "";
  }
  if (!value.is_string()) return "no string";
  const std::size_t length = characters(value.get<std::string>());
  if (length < schema.value("minLength", 0u)) return "too short";
  return length > schema.value("maxLength", 100000u) ? "too long" : "";
}

}  // namespace bl::test
