#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/open_model.h"
#include "ops/kv_layout.h"
#include "usage_error.h"

// Flags of ModelOptions that other commands have, too.
namespace bl {

inline constexpr const char* kLayerMapHelp =
    "layers that run, in order, some again or not at all, such as 0..15,11..31";

inline constexpr const char* kOverrideHelp =
    "modules whose names fit come from another model, such as '*.self_attn.*=DIR'";

// What --override says. UsageError.
inline std::vector<WeightOverride> overrides_of(const std::vector<std::string>& flags) {
  std::vector<WeightOverride> overrides;
  for (const std::string& flag : flags) {
    const std::size_t equals = flag.find('=');
    if (equals == 0 || equals >= flag.size() - 1) {
      fail_usage("--override: '{}' is not PATTERN=DIR, such as '*.self_attn.*=DIR'", flag);
    }
    overrides.push_back({flag.substr(0, equals), flag.substr(equals + 1)});
  }
  return overrides;
}

inline const char* cache_help() {
  static const std::string help =
      "keys and values as " + cache_type_names() + ", or apart as q8,q4, q5,q3 …";
  return help.c_str();
}

// What --cache says; nothing where it is not given. UsageError.
inline std::optional<CacheTypes> cache_types_of(const std::string& flag) {
  if (flag.empty()) return std::nullopt;
  const ParsedCacheTypes parsed = parse_cache_types(flag);
  if (!parsed.types) fail_usage("--cache: {}, such as q8 or q8,q4", parsed.fault);
  return parsed.types;
}

}  // namespace bl
