#include "ops/kv_layout.h"

#include <algorithm>
#include <array>
#include <utility>

namespace bl {
namespace {

constexpr std::array<std::pair<CacheType, std::string_view>, 6> kNames{{
    {CacheType::kF32, "fp32"},
    {CacheType::kF16, "fp16"},
    {CacheType::kFp8, "fp8"},
    {CacheType::kQ8, "q8"},
    {CacheType::kQ6, "q6"},
    {CacheType::kQ4, "q4"},
}};

KvRow row_of(CacheType type, int dim) {
  switch (type) {
    case CacheType::kF32:
      return {KvRow::Code::kF32, 32, dim};
    case CacheType::kF16:
      return {KvRow::Code::kF16, 16, dim};
    case CacheType::kFp8:
      return {KvRow::Code::kE4M3, 8, dim};
    case CacheType::kQ8:
      return {KvRow::Code::kInt, 8, dim};
    case CacheType::kQ6:
      return {KvRow::Code::kInt, 6, dim};
    case CacheType::kQ4:
      return {KvRow::Code::kInt, 4, dim};
  }
  return {};
}

std::optional<CacheType> parse_cache_type(std::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(CacheType type) {
  for (const auto& [value, name] : kNames) {
    if (value == type) return name;
  }
  return "?";
}

std::string name_of(CacheTypes types) {
  std::string name(name_of(types.k));
  if (!types.are_one()) name.append(",").append(name_of(types.v));
  return name;
}

std::optional<CacheTypes> parse_cache_types(std::string_view name) {
  const std::size_t comma = name.find(',');
  const auto keys = parse_cache_type(name.substr(0, comma));
  const auto values =
      comma == std::string_view::npos ? keys : parse_cache_type(name.substr(comma + 1));
  if (!keys || !values) return std::nullopt;
  const CacheTypes types{*keys, *values};
  const auto found = std::find(kAllCacheTypes.begin(), kAllCacheTypes.end(), types);
  return found == kAllCacheTypes.end() ? std::nullopt : std::optional(types);
}

std::size_t KvRow::code_bytes() const {
  const auto elements = static_cast<std::size_t>(dim);
  const auto width = static_cast<std::size_t>(bits);
  if (code != Code::kInt) return elements * width / 8;
  // Whole groups, and a last one whose nibbles and pairs of bits are rounded up to bytes.
  const std::size_t last = elements % kKvScaleGroup;
  const std::size_t whole = (elements - last) * width / 8;
  if (bits == 8) return whole + last;
  return whole + (last + 1) / 2 + (bits == 6 ? (last + 3) / 4 : 0);
}

std::size_t KvRow::bytes() const {
  if (code != Code::kInt) return code_bytes();
  const int groups = (dim + kKvScaleGroup - 1) / kKvScaleGroup;
  return code_bytes() + static_cast<std::size_t>(groups) * 2;
}

KvRow KvLayout::k_row() const { return row_of(type.k, k_dim); }
KvRow KvLayout::v_row() const { return row_of(type.v, v_dim); }

}  // namespace bl
