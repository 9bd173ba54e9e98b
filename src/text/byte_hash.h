#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

namespace bl {

// A hash of a short string that takes eight bytes per step. Collisions are easy to construct:
// tables that use it must compare whole keys and be bounded by the size of the file that fills
// them.
inline std::uint64_t hash_bytes(std::string_view text) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
  std::uint64_t hash = text.size() * kOdd;
  const char* p = text.data();
  std::size_t left = text.size();
  while (left > 0) {
    std::uint64_t word = 0;
    const std::size_t step = left < 8 ? left : 8;
    std::memcpy(&word, p, step);
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 32;
    p += step;
    left -= step;
  }
  hash *= kOdd;
  return hash ^ hash >> 29;
}

}  // namespace bl
