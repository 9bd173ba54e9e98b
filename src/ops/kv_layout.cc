#include "ops/kv_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/nearest_name.h"

namespace bl {
namespace {

const NamedCacheType* find(std::string_view name) {
  const auto* found = std::find_if(kCacheTypes.begin(), kCacheTypes.end(),
                                   [&](const NamedCacheType& named) { return named.name == name; });
  return found == kCacheTypes.end() ? nullptr : found;
}

const NamedCacheType& named(CacheType type) {
  const auto* found = std::find_if(kCacheTypes.begin(), kCacheTypes.end(),
                                   [&](const NamedCacheType& each) { return each.type == type; });
  BL_CHECK(found != kCacheTypes.end());
  return *found;
}

std::string names_of_types(bool only_int_codes) {
  std::string names;
  for (const NamedCacheType& each : kCacheTypes) {
    if (only_int_codes && !is_int_code(each.type)) continue;
    names.append(names.empty() ? "" : ", ").append(each.name);
  }
  return names;
}

KvRow row_of(CacheType type, int dim) { return {named(type).code, named(type).bits, dim}; }

}  // namespace

std::string_view name_of(CacheType type) { return named(type).name; }

std::string name_of(CacheTypes types) {
  std::string name(name_of(types.k));
  if (!types.are_one()) name.append(",").append(name_of(types.v));
  return name;
}

std::string cache_type_names() { return names_of_types(false); }

ParsedCacheTypes parse_cache_types(std::string_view name) {
  const std::size_t comma = name.find(',');
  const bool apart = comma != std::string_view::npos;
  const std::string_view of_keys = name.substr(0, comma);
  const std::string_view of_values = apart ? name.substr(comma + 1) : of_keys;
  if (of_values.find(',') != std::string_view::npos) {
    return {{}, fmt::format("'{}' has more than one type for keys and one for values", name)};
  }
  const NamedCacheType* keys = find(of_keys);
  const NamedCacheType* values = find(of_values);
  if (keys == nullptr || values == nullptr) {
    const std::string_view wrong = keys == nullptr ? of_keys : of_values;
    std::vector<std::string> known;
    for (const NamedCacheType& each : kCacheTypes) known.emplace_back(each.name);
    return {{},
            fmt::format("'{}' is not one of {}{}", wrong, cache_type_names(),
                        did_you_mean(wrong, known))};
  }
  const CacheTypes types{keys->type, values->type};
  if (!types.go_together()) {
    return {{},
            fmt::format("'{}': different types for keys and values must be two of {}", name,
                        names_of_types(true))};
  }
  return {types, {}};
}

std::size_t KvRow::code_bytes() const {
  const auto elements = static_cast<std::size_t>(dim);
  const auto width = static_cast<std::size_t>(bits);
  if (code != Code::kInt) return elements * width / 8;
  // Whole groups, then a shorter last group, each of whose planes is rounded up to whole bytes.
  const int last = dim % kKvScaleGroup;
  std::size_t bytes = (elements - static_cast<std::size_t>(last)) * width / 8;
  for (const int plane : kKvPlanes) {
    if ((bits & plane) != 0) bytes += static_cast<std::size_t>(kv_plane_bytes(last, plane));
  }
  return bytes;
}

std::size_t KvRow::bytes() const {
  if (code != Code::kInt) return code_bytes();
  const int groups = (dim + kKvScaleGroup - 1) / kKvScaleGroup;
  return code_bytes() + static_cast<std::size_t>(groups) * 2;
}

KvRow KvLayout::k_row() const { return row_of(type.k, k_dim); }
KvRow KvLayout::v_row() const { return row_of(type.v, v_dim); }

}  // namespace bl
