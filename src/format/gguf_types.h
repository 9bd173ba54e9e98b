#pragma once
// Element types of GGUF tensors: how many elements a group holds and how many bytes it takes.

#include <cstdint>
#include <string>
#include <string_view>

namespace bl {

// The numbers are those that the file stores.
enum class GgufType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kIq4Nl = 20,
  kIq4Xs = 23,
  kBF16 = 30,
  kMxfp4 = 39,
};

struct GgufTypeInfo {
  std::uint32_t number = 0;
  std::string_view name;  // "Q4_K"
  std::int64_t group_elements = 0;
  std::int64_t group_bytes = 0;
  bool readable = false;  // dequantize_gguf() can decode it
};

// nullptr for a number that names no type.
const GgufTypeInfo* find_gguf_type(std::uint32_t number);
// The facts about a type that find_gguf_type() knows; any other type is a bug.
const GgufTypeInfo& info_of(GgufType type);
// The names of all readable types for messages: "F32, F16, …".
std::string readable_gguf_types();

}  // namespace bl
