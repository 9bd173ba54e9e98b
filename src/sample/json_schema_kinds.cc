#include "sample/json_schema_kinds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json.h"

namespace bl {
namespace {

constexpr JsonKinds kInteger = 1u << 0;
constexpr JsonKinds kFraction = 1u << 1;
constexpr std::array<std::pair<std::string_view, JsonKinds>, 7> kNames{
    std::pair<std::string_view, JsonKinds>{"integer", kInteger},
    {"number", kInteger | kFraction},
    {"string", 1u << 2},
    {"boolean", 1u << 3},
    {"null", 1u << 4},
    {"object", 1u << 5},
    {"array", 1u << 6}};

JsonKinds kinds_of_name(std::string_view name) {
  for (const auto& [known, kinds] : kNames) {
    if (known == name) return kinds;
  }
  return 0;
}

JsonKinds kind_of_value(const OrderedJson& value) {
  // JSON Schema uses the same names.
  if (!value.is_number()) return kinds_of_name(value.type_name());
  const auto number = value.get<double>();
  return number == std::floor(number) ? kInteger : kFraction;
}

// The union of the kinds of all alternatives of a schema. Visits each place once, because
// references may form cycles.
class KindFinder {
 public:
  KindFinder(const OrderedJson& root, const OrderedJson& schema) : root_(root) { add(schema); }

  JsonKinds run() {
    while (!open_.empty() && kinds_ != kAllKinds) {
      const OrderedJson& schema = *open_.back();
      open_.pop_back();
      look_at(schema);
    }
    return kinds_;
  }

 private:
  static constexpr std::size_t kMostPlaces = 1000;  // beyond this, all kinds are assumed

  void add(const OrderedJson& schema) {
    if (!seen_.insert(&schema).second) return;
    open_.push_back(&schema);
    if (seen_.size() > kMostPlaces) kinds_ = kAllKinds;
  }

  void look_at(const OrderedJson& schema) {
    if (!schema.is_object()) {
      kinds_ = kAllKinds;
    } else if (const auto ref = schema.find("$ref"); ref != schema.end()) {
      const OrderedJson* at = ref->is_string()
                                  ? place_of_reference(root_, ref->get_ref<const std::string&>())
                                  : nullptr;
      if (at == nullptr) kinds_ = kAllKinds;
      if (at != nullptr) add(*at);
    } else if (const auto value = schema.find("const"); value != schema.end()) {
      kinds_ |= kind_of_value(*value);
    } else if (const auto values = schema.find("enum"); values != schema.end()) {
      for (const OrderedJson& one : *values) kinds_ |= kind_of_value(one);
    } else if (!add_branches(schema)) {
      kinds_ |= kinds_by_itself(schema);
    }
  }

  bool add_branches(const OrderedJson& schema) {
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      const auto branches = schema.find(key);
      if (branches == schema.end()) continue;
      if (!branches->is_array()) kinds_ = kAllKinds;
      for (const OrderedJson& branch : *branches) add(branch);
      return true;
    }
    return false;
  }

  static JsonKinds kinds_by_itself(const OrderedJson& schema) {
    const auto type = schema.find("type");
    if (type != schema.end()) return kinds_of_type(*type);
    for (const char* key : {"properties", "additionalProperties", "unevaluatedProperties"}) {
      if (schema.contains(key)) return kinds_of_name("object");
    }
    for (const char* key : {"items", "prefixItems", "unevaluatedItems"}) {
      if (schema.contains(key)) return kinds_of_name("array");
    }
    return kAllKinds;
  }

  const OrderedJson& root_;
  std::vector<const OrderedJson*> open_;
  std::unordered_set<const OrderedJson*> seen_;
  JsonKinds kinds_ = 0;
};

// The bound in steps, rounded up for a lower bound (sign 1) and down for an upper bound (sign −1).
double steps_from(const OrderedJson& schema, const char* inclusive, const char* exclusive,
                  double sign, double steps_of_one) {
  double most = -std::numeric_limits<double>::infinity();
  for (const char* key : {inclusive, exclusive}) {
    const auto bound = schema.find(key);
    if (bound == schema.end() || !bound->is_number()) continue;
    const double at = sign * bound->get<double>() * steps_of_one;
    const double nearest = std::round(at);
    const bool on_step = std::abs(at - nearest) <= 1e-9 * std::max(1.0, std::abs(at));
    double first = on_step ? nearest : std::ceil(at);
    if (on_step && key == exclusive) first += 1;
    most = std::max(most, first);
  }
  return sign * most;
}

}  // namespace

JsonKinds kinds_of_type(const OrderedJson& type) {
  if (type.is_string()) return kinds_of_name(type.get_ref<const std::string&>());
  JsonKinds kinds = 0;
  if (!type.is_array()) return kinds;
  for (const OrderedJson& one : type) {
    if (one.is_string()) kinds |= kinds_of_name(one.get_ref<const std::string&>());
  }
  return kinds;
}

JsonKinds kinds_of_schema(const OrderedJson& root, const OrderedJson& schema) {
  return KindFinder(root, schema).run();
}

const OrderedJson* place_of_reference(const OrderedJson& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  const OrderedJson* at = &root;
  std::string_view rest = reference.substr(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string part(rest.substr(0, rest.find('/')));
    rest.remove_prefix(part.size());
    if (part.empty()) continue;
    if (!at->is_object() || !at->contains(part)) return nullptr;
    at = &(*at)[part];
  }
  return at;
}

bool leaves_no_number(const OrderedJson& schema) {
  const auto type = schema.find("type");
  const JsonKinds kinds = type == schema.end() ? kAllKinds : kinds_of_type(*type);
  if ((kinds & (kInteger | kFraction)) == 0) return false;
  const double steps = (kinds & kFraction) != 0 ? 1e6 : 1.0;
  const double least = steps_from(schema, "minimum", "exclusiveMinimum", 1.0, steps);
  const double most = steps_from(schema, "maximum", "exclusiveMaximum", -1.0, steps);
  return least > most;
}

}  // namespace bl
