#include "ops/kv_layout.h"

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

constexpr int kScaleGroup = 32;  // elements that share a binary16 scale

std::size_t row_bytes(CacheType type, int dim, int q6_bits) {
  const auto d = static_cast<std::size_t>(dim);
  const auto quantized = [&](int bits) {
    return (d * bits + 7) / 8 + (d + kScaleGroup - 1) / kScaleGroup * 2;
  };
  switch (type) {
    case CacheType::kF32:
      return d * 4;
    case CacheType::kF16:
      return d * 2;
    case CacheType::kFp8:
      return d;
    case CacheType::kQ8:
      return quantized(8);
    case CacheType::kQ6:
      return quantized(q6_bits);
    case CacheType::kQ4:
      return quantized(4);
  }
  return 0;
}

}  // namespace

std::string_view name_of(CacheType type) {
  for (const auto& [value, name] : kNames) {
    if (value == type) return name;
  }
  return "?";
}

std::optional<CacheType> parse_cache_type(std::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) return value;
  }
  return std::nullopt;
}

std::size_t KvLayout::k_row_bytes() const { return row_bytes(type, k_dim, 8); }
std::size_t KvLayout::v_row_bytes() const { return row_bytes(type, v_dim, 4); }

}  // namespace bl
