#include "grammar/schema_document.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

// Pointers are repeated in every place below them, so long ones are cut.
std::string place_in(const std::string& place, std::string_view path) {
  constexpr std::size_t kMost = 300;
  constexpr std::string_view kCut = "/…";
  if (place.ends_with(kCut)) return place;
  return place + (place.size() + path.size() < kMost ? "/" + std::string(path) : std::string(kCut));
}

SchemaDraft draft_of(const OrderedJson& root) {
  if (!root.is_object() || !root.contains("$schema") || !root["$schema"].is_string()) {
    return SchemaDraft::kUnknown;
  }
  const auto& name = root["$schema"].get_ref<const std::string&>();
  constexpr std::array<std::pair<std::string_view, SchemaDraft>, 6> kNames{{
      {"draft-03", SchemaDraft::k4},
      {"draft-04", SchemaDraft::k4},
      {"draft-06", SchemaDraft::k6},
      {"draft-07", SchemaDraft::k7},
      {"2019-09", SchemaDraft::k2019},
      {"2020-12", SchemaDraft::k2020},
  }};
  for (const auto& [part, draft] : kNames) {
    if (name.find(part) != name.npos) return draft;
  }
  return SchemaDraft::kUnknown;
}

// Resolves `reference` against `base` (RFC 3986, section 5, without dot segments).
std::string resolved(const std::string& base, const std::string& reference) {
  if (reference.empty()) return base;
  if (reference.find(':') != reference.npos) return reference;
  const std::size_t scheme = base.find("://");
  if (reference[0] == '/') {
    if (scheme == base.npos) return reference;
    const std::size_t path = base.find('/', scheme + 3);
    return base.substr(0, path) + reference;
  }
  const std::size_t slash = base.rfind('/');
  return (slash == base.npos ? "" : base.substr(0, slash + 1)) + reference;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

// Undoes %XX, and then ~1 and ~0 (RFC 6901, section 6).
std::string decoded(std::string_view part) {
  std::string plain;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] == '%' && i + 2 < part.size() && hex_value(part[i + 1]) >= 0 &&
        hex_value(part[i + 2]) >= 0) {
      plain += static_cast<char>(hex_value(part[i + 1]) * 16 + hex_value(part[i + 2]));
      i += 2;
    } else {
      plain += part[i];
    }
  }
  std::string result;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const bool escaped = plain[i] == '~' && i + 1 < plain.size();
    if (escaped && plain[i + 1] == '1') {
      result += '/';
      ++i;
    } else if (escaped && plain[i + 1] == '0') {
      result += '~';
      ++i;
    } else {
      result += plain[i];
    }
  }
  return result;
}

std::string shown(const std::string& text) { return json_text(OrderedJson(text.substr(0, 200))); }

const std::string* text_member(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return nullptr;
  return &found->get_ref<const std::string&>();
}

}  // namespace

SchemaDocument::SchemaDocument(const OrderedJson& root) : root_(root), draft_(draft_of(root)) {
  if (!root.is_object() && !root.is_boolean()) {
    fail(ErrorCode::kInvalidArgument, "the JSON schema should be an object");
  }
  homes_[&root] = {"#", &root};
  addresses_[&root] = "";
  by_address_[""] = &root;
  find_identifiers(root, root, "");
}

// Finds the addresses that schemas give themselves. Values of enum and const are no schemas.
void SchemaDocument::find_identifiers(const OrderedJson& at, const OrderedJson& resource,
                                      std::string address) {
  const OrderedJson* home = &resource;
  if (at.is_object()) {
    const std::string* id = text_member(at, since(SchemaDraft::k6) ? "$id" : "id");
    const bool ignored = reference_stands_alone() && at.contains("$ref");
    if (id != nullptr && !ignored) {
      const std::size_t fragment = std::min(id->find('#'), id->size());
      if (fragment > 0) {
        address = resolved(address, id->substr(0, fragment));
        home = &at;
        by_address_.try_emplace(address, &at);
        addresses_[&at] = address;
      }
      if (fragment + 1 < id->size()) by_address_.try_emplace(address + id->substr(fragment), &at);
    }
    for (const char* key : {"$anchor", "$dynamicAnchor"}) {
      if (const std::string* anchor = text_member(at, key)) {
        by_address_.try_emplace(address + "#" + *anchor, &at);
      }
    }
  }
  if (!at.is_structured()) return;
  unevaluated_ = unevaluated_ || (at.is_object() && at.contains("unevaluatedProperties"));
  for (const auto& [key, value] : at.items()) {
    if (at.is_object() && (key == "enum" || key == "const")) continue;
    find_identifiers(value, *home, address);
  }
}

const OrderedJson* SchemaDocument::part(const OrderedJson& schema, const char* key) {
  const auto found = schema.find(key);
  if (found == schema.end()) return nullptr;
  return part_at(schema, *found, key);
}

const OrderedJson* SchemaDocument::part_at(const OrderedJson& schema, const OrderedJson& value,
                                           const std::string& path) {
  if (!value.is_object() && !value.is_boolean()) {
    refuse(schema, "has a {} that is no schema", path);
  }
  const Home& home = homes_.at(&schema);
  const bool own = addresses_.contains(&value);
  homes_.try_emplace(&value, Home{place_in(home.place, path), own ? &value : home.resource});
  return &value;
}

const OrderedJson* SchemaDocument::keep(const OrderedJson& schema, OrderedJson made) {
  made_.push_back(std::move(made));
  homes_[&made_.back()] = homes_.at(&schema);
  return &made_.back();
}

const OrderedJson* SchemaDocument::target(const OrderedJson& schema, const std::string& reference) {
  const OrderedJson& resource = *homes_.at(&schema).resource;
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  const std::string fragment = hash < reference.size() ? reference.substr(hash + 1) : "";
  const OrderedJson* from = &resource;
  std::string address = addresses_.at(&resource);
  if (hash > 0) {
    address = resolved(address, reference.substr(0, hash));
    const auto found = by_address_.find(address);
    if (found == by_address_.end()) {
      refuse(schema,
             "refers to {}, which is not in the schema: put it into $defs and refer to it by "
             "#/$defs/NAME",
             shown(reference));
    }
    from = found->second;
  }
  if (fragment.empty()) {
    homes_.try_emplace(from, Home{reference, from});
    return from;
  }
  if (fragment[0] != '/') {
    const auto found = by_address_.find(address + "#" + decoded(fragment));
    if (found == by_address_.end()) {
      refuse(schema, "refers to {}, but no schema has that name", shown(reference));
    }
    homes_.try_emplace(found->second, Home{reference, from});
    return found->second;
  }
  return follow_pointer(schema, *from, reference, fragment);
}

const OrderedJson* SchemaDocument::follow_pointer(const OrderedJson& from,
                                                  const OrderedJson& resource,
                                                  const std::string& reference,
                                                  std::string_view pointer) {
  const OrderedJson* at = &resource;
  const OrderedJson* home = &resource;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::string part = decoded(pointer.substr(0, pointer.find('/')));
    pointer.remove_prefix(std::min(pointer.find('/'), pointer.size()));
    if (at->is_object() && at->contains(part)) {
      at = &(*at)[part];
    } else if (at->is_array() && !part.empty() && part.size() < 8 &&
               part.find_first_not_of("0123456789") == part.npos && std::stoul(part) < at->size()) {
      at = &(*at)[std::stoul(part)];
    } else {
      refuse(from, "refers to {}, which leads nowhere", shown(reference));
    }
    if (addresses_.contains(at)) home = at;
  }
  if (!at->is_object() && !at->is_boolean()) {
    refuse(from, "refers to {}, which is no schema", shown(reference));
  }
  homes_.try_emplace(at, Home{reference, home});
  return at;
}

const std::string& SchemaDocument::place(const OrderedJson& schema) const {
  return homes_.at(&schema).place;
}

void SchemaDocument::refuse_phrase(const OrderedJson& schema, const std::string& phrase) const {
  fail(ErrorCode::kInvalidArgument, "the JSON schema at {} {}", place(schema), phrase);
}

}  // namespace bl
