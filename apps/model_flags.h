#pragma once
#include <optional>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "engine/open_model.h"
#include "ops/kv_layout.h"
#include "usage_error.h"

// Flags of ModelOptions that other commands also have.
namespace bl {

inline constexpr const char* kLayerMapHelp = "layers to run, in order, such as 0..15,11..31";

inline constexpr const char* kOverrideHelp = "take modules from another model: '*.self_attn.*=DIR'";

// Parses the values of --override. Throws UsageError.
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

// Throws UsageError where the value of `flag` cannot be a backend.
inline void check_backend_flag(const char* flag, const std::string& name) {
  try {
    check_backend_name(name);
  } catch (const Error& error) {
    fail_usage("{}: {}", flag, error.what());
  }
}

inline const char* cache_help() {
  static const std::string help =
      "KV cache type: " + cache_type_names() + "; or keys,values: q8,q4";
  return help.c_str();
}

// Parses the value of --cache; nothing if it was not given. Throws UsageError.
inline std::optional<CacheTypes> cache_types_of(const std::string& flag) {
  if (flag.empty()) return std::nullopt;
  const ParsedCacheTypes parsed = parse_cache_types(flag);
  if (!parsed.types)
    fail_usage("--cache: {} (examples: q8, or q8,q4 for keys and values)", parsed.fault);
  return parsed.types;
}

}  // namespace bl
