#pragma once
// The layout of keys and values in pages.
//
// Goals: one page size for all cache types and backends. A page is self-contained, so that sharing,
// copying, saving and swapping a page is a plain copy of its bytes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/tensor_view.h"

namespace bl {

inline constexpr int kPageSlots = 256;  // token slots per page
// Number of pages that hold `tokens` positions of one sequence.
constexpr std::int64_t pages_for(std::int64_t tokens) {
  return (tokens + kPageSlots - 1) / kPageSlots;
}

enum class CacheType : std::uint8_t { kF32, kF16, kFp8, kQ8, kQ6, kQ4, kQ7, kQ5, kQ3, kQ2 };

// Number format of one row: one head's vector of one token. ops/kv_codec.h defines the bytes.
struct KvRow {
  enum class Code : std::uint8_t { kF32, kF16, kE4M3, kInt };
  Code code = Code::kF32;
  int bits = 32;  // per element, without scales
  int dim = 0;

  // Rows of integer codes hold the rotated vector: attention rotates the query to match the keys,
  // and rotates its output back.
  bool rotated() const { return code == Code::kInt; }
  std::size_t code_bytes() const;
  std::size_t bytes() const;  // codes and scales
  bool operator==(const KvRow&) const = default;
};

// The one list of cache types. Files store the enumerator's value (docs/formats/prefix.md), so
// values must never change or be reused.
struct NamedCacheType {
  CacheType type;
  std::string_view name;
  KvRow::Code code;
  int bits;
};
inline constexpr std::array<NamedCacheType, 10> kCacheTypes{{
    {CacheType::kF32, "fp32", KvRow::Code::kF32, 32},
    {CacheType::kF16, "fp16", KvRow::Code::kF16, 16},
    {CacheType::kFp8, "fp8", KvRow::Code::kE4M3, 8},
    {CacheType::kQ8, "q8", KvRow::Code::kInt, 8},
    {CacheType::kQ7, "q7", KvRow::Code::kInt, 7},
    {CacheType::kQ6, "q6", KvRow::Code::kInt, 6},
    {CacheType::kQ5, "q5", KvRow::Code::kInt, 5},
    {CacheType::kQ4, "q4", KvRow::Code::kInt, 4},
    {CacheType::kQ3, "q3", KvRow::Code::kInt, 3},
    {CacheType::kQ2, "q2", KvRow::Code::kInt, 2},
}};

constexpr bool is_int_code(CacheType type) {
  for (const NamedCacheType& named : kCacheTypes) {
    if (named.type == type) return named.code == KvRow::Code::kInt;
  }
  return false;
}

// The types of keys and of values: the same type, or integer codes of any two widths. Keys need
// more bits, because their errors enter an exponent.
struct CacheTypes {
  CacheType k = CacheType::kF16;
  CacheType v = CacheType::kF16;

  constexpr CacheTypes() = default;
  constexpr CacheTypes(CacheType both) : k(both), v(both) {}  // NOLINT: as one says it
  constexpr CacheTypes(CacheType keys, CacheType values) : k(keys), v(values) {}
  constexpr bool are_one() const { return k == v; }
  constexpr bool go_together() const { return are_one() || (is_int_code(k) && is_int_code(v)); }
  bool operator==(const CacheTypes&) const = default;
};

// All valid pairs: first those with one type for both, then the others.
inline constexpr auto kAllCacheTypes = [] {
  constexpr std::size_t kWidths = [] {
    std::size_t widths = 0;
    for (const NamedCacheType& named : kCacheTypes) widths += is_int_code(named.type) ? 1 : 0;
    return widths;
  }();
  std::array<CacheTypes, kCacheTypes.size() + kWidths*(kWidths - 1)> all;
  std::size_t count = 0;
  for (const NamedCacheType& both : kCacheTypes) all[count++] = both.type;
  for (const NamedCacheType& keys : kCacheTypes) {
    for (const NamedCacheType& values : kCacheTypes) {
      const CacheTypes types(keys.type, values.type);
      if (!types.are_one() && types.go_together()) all[count++] = types;
    }
  }
  return all;
}();

std::string_view name_of(CacheType type);  // "fp16", "q4", …
std::string name_of(CacheTypes types);     // "fp16", or "q8,q4" for keys and values
// The names of all types: "fp32, fp16, …, q2".
std::string cache_type_names();

// The types that a name such as "q8" or "q8,q4" denotes, or one line that says what is wrong with
// it.
struct ParsedCacheTypes {
  std::optional<CacheTypes> types;
  std::string fault;
};
ParsedCacheTypes parse_cache_types(std::string_view name);

inline constexpr int kKvScaleGroup = 32;  // elements that share a binary16 scale

// Widths of the planes into which a group's codes are cut, lowest bits first: codes of b bits have
// the planes whose widths are the binary digits of b (7 = 4 + 2 + 1).
inline constexpr std::array<int, 4> kKvPlanes{8, 4, 2, 1};
// Bytes of a plane that holds `width` bits of each of `count` elements.
constexpr int kv_plane_bytes(int count, int width) { return (count * width + 7) / 8; }

// The keys and values of one layer in one page:
//   K: [kv_heads][kPageSlots][k_row_bytes]   V: [kv_heads][kPageSlots][v_row_bytes]
// A row is one head's vector of one token, encoded by itself (codes, then binary16 scales), so any
// head size works and slots never share bytes. Keys and values each have a format:
//
//   type   bytes of a row of d elements (d a multiple of 32)   bits per element
//   fp32   4d                                                  32
//   fp16   2d                                                  16
//   fp8    d                                                   8
//   q8     d + d/16 (codes, scales)                            8.5
//   qB     B · d/8 + d/16, B = 7 … 2                           B + 0.5
//
// Only the backend looks inside a page, so it may place the bytes of one head's rows in an order of
// its own, as long as they stay within the head's share of the page and a page means the same
// wherever it is copied. backend/cpu/attention_kernels.h does so for keys.
struct KvLayout {
  CacheTypes type{};
  int kv_heads = 0;
  int k_dim = 0;  // elements of one head's key
  int v_dim = 0;  // elements of one head's value

  KvRow k_row() const;
  KvRow v_row() const;
  std::size_t k_row_bytes() const { return k_row().bytes(); }
  std::size_t v_row_bytes() const { return v_row().bytes(); }
  std::size_t k_page_bytes() const { return k_row_bytes() * kPageSlots * kv_heads; }
  std::size_t v_page_bytes() const { return v_row_bytes() * kPageSlots * kv_heads; }
};

// The pages of one layer, as kernels access them.
struct PagedKvView {
  KvLayout layout;
  std::byte* k = nullptr;  // [pages][k_page_bytes]
  std::byte* v = nullptr;  // [pages][v_page_bytes]
  std::int64_t pages = 0;
};

}  // namespace bl
