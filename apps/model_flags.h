#pragma once
#include <optional>
#include <string>

#include "ops/kv_layout.h"
#include "usage_error.h"

// Flags of ModelOptions that other commands have, too.
namespace bl {

inline constexpr const char* kLayerMapHelp =
    "layers that run, in order, some again or not at all, such as 0..15,11..31";
inline constexpr const char* kCacheHelp =
    "keys and values as fp32, fp16, fp8, q8, q6, q4, or apart as q8,q6, q8,q4, q6,q4";

// What --cache says; nothing where it is not given. UsageError.
inline std::optional<CacheTypes> cache_types_of(const std::string& flag) {
  if (flag.empty()) return std::nullopt;
  const std::optional<CacheTypes> types = parse_cache_types(flag);
  if (!types) {
    fail_usage(
        "--cache: '{}' is not one of fp32, fp16, fp8, q8, q6, q4, nor of keys and values "
        "apart: q8,q6, q8,q4, q6,q4",
        flag);
  }
  return types;
}

}  // namespace bl
