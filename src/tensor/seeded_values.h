#pragma once
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace bl {

// Values that a seed stands for, as bulk weights of random models are: a stream of 64-bit words,
// each of which can be made by itself, so that a card makes in place what it would otherwise be
// sent.
struct SeededValues {
  std::uint64_t seed = 0;
  // Binary16: byte j of word i, counted from the lowest, chooses element 8i + j of `values`.
  // Otherwise the words are the bits themselves, little endian.
  bool halves = false;
  std::uint16_t values[256] = {};
};

inline constexpr std::uint64_t kSeededStep = 0x9e3779b97f4a7c15u;
// Word i of the stream: splitmix64 (Steele, Lea, Flood 2014).
BL_HD inline std::uint64_t seeded_word(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t z = seed + (i + 1) * kSeededStep;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The first `bytes` bytes of them on the host, by threads where they are many. `to` is aligned to
// its elements.
void make_values(const SeededValues& values, std::byte* to, std::size_t bytes);

}  // namespace bl
