#include "sample/json_schema_check.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "sample/json_schema_kinds.h"
#include "sample/regex_grammar.h"

namespace bl {
namespace {

// In the order in which the library looks for them; it uses only the first that is present.
constexpr std::array<const char*, 6> kChoices{"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

constexpr std::array<const char*, 13> kUnknown{"not",
                                               "if",
                                               "then",
                                               "else",
                                               "dependentRequired",
                                               "dependentSchemas",
                                               "dependencies",
                                               "additionalItems",
                                               "contains",
                                               "minContains",
                                               "maxContains",
                                               "$dynamicRef",
                                               "$recursiveRef"};

// Keywords that restrict a value; all others only describe it.
constexpr std::array<const char*, 21> kLimiting{
    "properties",        "required",         "additionalProperties",
    "patternProperties", "propertyNames",    "unevaluatedProperties",
    "minProperties",     "maxProperties",    "items",
    "prefixItems",       "unevaluatedItems", "minItems",
    "maxItems",          "minLength",        "maxLength",
    "pattern",           "minimum",          "maximum",
    "exclusiveMinimum",  "exclusiveMaximum", "multipleOf"};

// Each of these implies by itself that the value is an object or an array.
constexpr std::array<const char*, 6> kTelling{"properties",  "additionalProperties",
                                              "items",       "unevaluatedProperties",
                                              "prefixItems", "unevaluatedItems"};

constexpr std::array<const char*, 5> kOne{"additionalProperties", "unevaluatedProperties",
                                          "propertyNames", "items", "unevaluatedItems"};
constexpr std::array<const char*, 4> kListed{"prefixItems", "anyOf", "oneOf", "allOf"};
constexpr std::array<const char*, 2> kNamed{"properties", "patternProperties"};

// Appends a key to a JSON pointer. Keys may be arbitrarily long and are repeated in every place
// below them, so long pointers are cut.
std::string place_in(const std::string& place, std::string_view key) {
  constexpr std::size_t kMost = 300;
  constexpr std::string_view kCut = "/…";
  if (place.ends_with(kCut)) return place;
  return place + (place.size() + key.size() < kMost ? fmt::format("/{}", key) : std::string(kCut));
}

template <std::size_t N>
const char* first_of(const OrderedJson& schema, const std::array<const char*, N>& keys) {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const char* key) { return schema.contains(key); });
  return found == keys.end() ? nullptr : *found;
}

class Checker {
 public:
  explicit Checker(const OrderedJson& root) : root_(root) {}

  // Visits each place once, because references may form cycles.
  void run() {
    add(root_, "#");
    while (!open_.empty()) {
      const Place place = std::move(open_.back());
      open_.pop_back();
      check(place);
    }
  }

 private:
  struct Place {
    const OrderedJson* schema;
    std::string name;
    bool has_type;  // its type is known although the schema has no `type`
  };

  void add(const OrderedJson& schema, std::string name, bool has_type = false) {
    if (schema.is_object() && seen_.insert(&schema).second) {
      open_.push_back({&schema, std::move(name), has_type});
    }
  }

  void check(const Place& place) {
    const OrderedJson& schema = *place.schema;
    const std::string& name = place.name;
    if (const char* key = first_of(schema, kUnknown)) {
      fail(ErrorCode::kInvalidArgument, "the JSON schema at {} has {}, which is not supported",
           name, key);
    }
    if (const auto unique = schema.find("uniqueItems");
        unique != schema.end() && *unique != false) {
      fail(ErrorCode::kInvalidArgument,
           "the JSON schema at {} has uniqueItems, which is not supported", name);
    }
    if (const char* choice = first_of(schema, kChoices)) {
      check_choice(schema, choice, name);
    } else if (!place.has_type && !schema.contains("type") &&
               first_of(schema, kTelling) == nullptr) {
      if (const char* key = first_of(schema, kLimiting)) {
        fail(ErrorCode::kInvalidArgument, "the JSON schema at {} has {} without a type", name, key);
      }
    }
    check_type(schema, name);
    check_required(schema, name);
    check_property_names(schema, name);
    if (const auto pattern = schema.find("pattern"); pattern != schema.end()) {
      check_pattern(*pattern, name);
    }
    add_parts(schema, name);
  }

  // The library ignores a type beside a choice, which is harmless only if the type adds no
  // restriction.
  void check_type(const OrderedJson& schema, const std::string& name) const {
    const char* choice = first_of(schema, kChoices);
    const auto type = schema.find("type");
    if (type != schema.end()) {
      const JsonKinds kinds = kinds_of_type(*type);
      if (type->is_array() && type->empty()) {
        fail(ErrorCode::kInvalidArgument, "the JSON schema at {} has an empty list of types", name);
      }
      if (choice != nullptr && (kinds_of_schema(root_, schema) & ~kinds) != 0) {
        fail(ErrorCode::kInvalidArgument,
             "the JSON schema at {} has a type beside {}, which allows other types: move the type "
             "into it",
             name, choice);
      }
    }
    if (schema.contains("format") && (choice != nullptr || schema.contains("pattern"))) {
      fail(ErrorCode::kInvalidArgument,
           "the JSON schema at {} has format beside {}, which is not supported: remove one of them",
           name, choice != nullptr ? choice : "pattern");
    }
    if (choice == nullptr && leaves_no_number(schema)) {
      fail(ErrorCode::kInvalidArgument,
           "the JSON schema at {} has bounds that no number of up to six decimals (or, for an "
           "integer, no whole number) lies between",
           name);
    }
  }

  // The library enforces `required` only for properties that the schema describes.
  static void check_required(const OrderedJson& schema, const std::string& name) {
    const auto required = schema.find("required");
    if (required == schema.end() || !required->is_array()) return;
    const auto type = schema.find("type");
    if (type != schema.end() && type->is_string() && *type != "object") return;
    const auto properties = schema.find("properties");
    for (const OrderedJson& one : *required) {
      if (!one.is_string()) continue;
      if (properties != schema.end() && properties->is_object() &&
          properties->contains(one.get_ref<const std::string&>())) {
        continue;
      }
      fail(ErrorCode::kInvalidArgument,
           "the JSON schema at {} requires {}, which is not among its properties", name,
           json_text(one));
    }
  }

  // Where property names must have a form, the library checks that alone.
  static void check_property_names(const OrderedJson& schema, const std::string& name) {
    if (!schema.contains("propertyNames")) return;
    const char* beside = first_of(schema, kNamed);
    const auto others = schema.find("additionalProperties");
    if (beside == nullptr && others != schema.end() && *others == false) {
      beside = "additionalProperties: false";
    }
    if (beside == nullptr) return;
    fail(ErrorCode::kInvalidArgument,
         "the JSON schema at {} has propertyNames beside {}, which is not supported", name, beside);
  }

  static void check_pattern(const OrderedJson& pattern, const std::string& name) {
    if (!pattern.is_string()) return;
    if (const std::string fault = regex_fault(pattern.get_ref<const std::string&>());
        !fault.empty()) {
      fail(ErrorCode::kInvalidArgument, "the pattern of the JSON schema at {} {}", name, fault);
    }
  }

  void check_choice(const OrderedJson& schema, const std::string& choice, const std::string& name) {
    const char* beside = first_of(schema, kLimiting);
    for (const char* other : kChoices) {
      if (beside == nullptr && other != choice && schema.contains(other)) beside = other;
    }
    if (beside != nullptr) {
      fail(ErrorCode::kInvalidArgument,
           "the JSON schema at {} has {} beside {}, which is not supported: merge them into one",
           name, beside, choice);
    }
    const OrderedJson& value = schema[choice];
    if (choice == "allOf" && value.is_array() && value.size() > 1) {
      fail(ErrorCode::kInvalidArgument,
           "the JSON schema at {} has an allOf of {} schemas; only one is supported", name,
           value.size());
    }
    if (choice == "$ref" && value.is_string()) follow(value.get<std::string>(), name);
    if (choice == "const" || choice == "enum") check_value(value, name);
  }

  // The library prints integers above the signed 64-bit range as the nearest double.
  static void check_value(const OrderedJson& value, const std::string& name) {
    if (value.is_structured()) {
      for (const OrderedJson& part : value) check_value(part, name);
    }
    if (!value.is_number_unsigned()) return;
    const auto number = value.get<std::uint64_t>();
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    // A double holds the upper 53 of 64 bits exactly.
    if (number <= kMost || (number & 0x7ff) == 0) return;
    fail(ErrorCode::kInvalidArgument,
         "the JSON schema at {} has the value {}, which is too large to be written exactly", name,
         number);
  }

  // Adds the schema that a reference leads to. The library itself refuses pointers that lead
  // nowhere. It does not decode escapes, so it would take them for characters of another name.
  void follow(const std::string& reference, const std::string& name) {
    if (reference != "#" && !reference.starts_with("#/")) {
      fail(ErrorCode::kInvalidArgument,
           "the JSON schema at {} refers to {}; only references within the schema (#/…) are "
           "supported",
           name, json_text(OrderedJson(reference.substr(0, 200))));
    }
    if (reference.find_first_of("~%") != reference.npos) {
      fail(ErrorCode::kInvalidArgument,
           "the JSON schema at {} refers to {}; references with an escape (~ or %) are not "
           "supported",
           name, json_text(OrderedJson(reference.substr(0, 200))));
    }
    const OrderedJson* at = place_of_reference(root_, reference);
    if (at == nullptr) return;
    add(*at, reference == "#" ? reference : place_in("#", std::string_view(reference).substr(2)));
  }

  void add_parts(const OrderedJson& schema, const std::string& name) {
    for (const char* key : kOne) {
      if (schema.contains(key)) {
        // Property names are strings.
        const bool has_type = std::string_view(key) == "propertyNames";
        add(schema[key], place_in(name, key), has_type);
      }
    }
    for (const char* key : kListed) {
      if (!schema.contains(key) || !schema[key].is_array()) continue;
      const std::string list = place_in(name, key);
      for (std::size_t i = 0; i < schema[key].size(); ++i) {
        add(schema[key][i], place_in(list, std::to_string(i)));
      }
    }
    for (const char* key : kNamed) {
      if (!schema.contains(key) || !schema[key].is_object()) continue;
      const std::string list = place_in(name, key);
      for (const auto& [property, part] : schema[key].items()) {
        if (std::string_view(key) == "patternProperties") check_pattern(property, name);
        add(part, place_in(list, property));
      }
    }
  }

  const OrderedJson& root_;
  std::vector<Place> open_;
  std::unordered_set<const OrderedJson*> seen_;
};

void check_tag_part(const OrderedJson& part, const std::string& name) {
  if (!part.is_structured()) return;
  if (is_plain_schema_format(part)) return;
  const bool is_regex = part.is_object() && part.value("type", OrderedJson()) == "regex";
  for (const auto& [key, value] : part.items()) {
    if (part.is_object() && (key == "json_schema" || key == "schema")) {
      check_json_schema(value);
      continue;
    }
    if (is_regex && key == "pattern" && value.is_string()) {
      if (const std::string fault = regex_fault(value.get_ref<const std::string&>());
          !fault.empty()) {
        fail(ErrorCode::kInvalidArgument, "the pattern of the structural tag at {} {}", name,
             fault);
      }
    }
    check_tag_part(value, place_in(name, key));
  }
}

}  // namespace

void check_json_schema(const OrderedJson& schema) { Checker(schema).run(); }

void check_structural_tag(const OrderedJson& tag) { check_tag_part(tag, "#"); }

bool is_plain_schema_format(const OrderedJson& part) {
  return part.is_object() && part.value("type", OrderedJson()) == "json_schema" &&
         part.contains("json_schema") && part.value("style", OrderedJson("json")) == "json";
}

}  // namespace bl
