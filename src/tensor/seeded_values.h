#pragma once
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace bl {

// Values that a seed stands for, such as the bulk weights of random models: a stream of 64-bit
// words, each of which can be computed on its own, so that a device makes them in place instead of
// receiving them from the host.
struct SeededValues {
  std::uint64_t seed = 0;
  // True: the values are binary16; element 8i + j is `values[b]`, where b is byte j (lowest first)
  // of word i. False: the words themselves are the bytes, little endian.
  bool halves = false;
  std::uint16_t values[256] = {};
};

inline constexpr std::uint64_t kSeededStep = 0x9e3779b97f4a7c15u;
// Word i of the stream that `seed` begins: splitmix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014).
BL_HD inline std::uint64_t seeded_word(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed + (i + 1) * kSeededStep;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Writes the first `bytes` bytes of the stream to host memory, with several threads where they are
// many. `to` must be aligned to its elements.
void make_values(const SeededValues& values, std::byte* to, std::size_t bytes);

}  // namespace bl
