#pragma once
// Packs and unpacks the bit planes of a group's codes (ops/kv_codec.h) for any width, in words of
// eight bytes: shifts that stay within each byte need no vectors.

#include <cstdint>

#include "ops/kv_layout.h"

namespace bl::cpu::BL_ISA {

inline std::uint64_t load_eight(const std::uint8_t* p) {
  std::uint64_t bytes;
  __builtin_memcpy(&bytes, p, 8);
  return bytes;
}

struct Plane {
  int width = 0;   // bits per element
  int lowest = 0;  // lowest bit of the code that it holds
  int begin = 0;   // offset of its bytes in the group
  int bytes = 0;

  std::uint64_t mask() const { return 0x0101010101010101u * ((1u << width) - 1u); }
};

// Calls body(plane) for each plane of a group of `count` elements, in the order of kKvPlanes.
// Functions here must not be shared between instruction sets.
template <class Body>
inline void for_planes(int bits, int count, const Body& body) {
  Plane plane;
  for (int width = 8; width > 0; width /= 2) {
    if ((bits & width) == 0) continue;
    plane.width = width;
    plane.bytes = (count * width + 7) / 8;
    body(plane);
    plane.lowest += width;
    plane.begin += plane.bytes;
  }
}

// Packs codes n[32] of fewer than eight bits into the bytes of a group of `count` elements. n[i]
// must be h for i ≥ count.
inline void pack_group(const std::uint8_t* n, int bits, int count, std::uint8_t* out) {
  for_planes(bits, count, [&](const Plane& plane) {
    const unsigned mask = (1u << plane.width) - 1u;
    for (int i = 0; i < plane.bytes; ++i) {
      unsigned joined = 0;
      for (int j = 0; j < 8 / plane.width; ++j) {
        joined |= (n[i + j * plane.bytes] >> plane.lowest & mask) << (plane.width * j);
      }
      out[plane.begin + i] = static_cast<std::uint8_t>(joined);
    }
  });
}

// Returns code i of a packed group of `count` elements.
inline int code_in_group(const std::uint8_t* codes, int bits, int count, int i) {
  unsigned n = 0;
  for_planes(bits, count, [&](const Plane& plane) {
    const unsigned joined = codes[plane.begin + i % plane.bytes];
    const unsigned part = joined >> (plane.width * (i / plane.bytes)) & ((1u << plane.width) - 1u);
    n |= part << plane.lowest;
  });
  return static_cast<int>(n);
}

// pack_group() for a whole group. Elements 8k … 8k + 7 are the bytes of word k. A plane of single
// bits has four bytes: bit 2k of these belongs to elements 8k … 8k + 3, bit 2k + 1 to elements 8k +
// 4 … 8k + 7.
inline void pack_whole_group(const std::uint8_t* n, int bits, std::uint8_t* out) {
  for_planes(bits, kKvScaleGroup, [&](const Plane& plane) {
    const auto part = [&](int k) { return load_eight(n + 8 * k) >> plane.lowest & plane.mask(); };
    std::uint8_t* to = out + plane.begin;
    if (plane.width == 4) {
      const std::uint64_t words[2] = {part(0) | part(2) << 4, part(1) | part(3) << 4};
      __builtin_memcpy(to, words, 16);
    } else if (plane.width == 2) {
      const std::uint64_t word = part(0) | part(1) << 2 | part(2) << 4 | part(3) << 6;
      __builtin_memcpy(to, &word, 8);
    } else {
      const std::uint64_t both = part(0) | part(1) << 2 | part(2) << 4 | part(3) << 6;
      const auto word = static_cast<std::uint32_t>(both | both >> 31);
      __builtin_memcpy(to, &word, 4);
    }
  });
}

// Unpacks the codes of a whole group to n[32].
inline void unpack_whole_group(const std::uint8_t* codes, int bits, std::uint8_t* n) {
  std::uint64_t words[4] = {};
  for_planes(bits, kKvScaleGroup, [&](const Plane& plane) {
    const std::uint8_t* from = codes + plane.begin;
    if (plane.width == 4) {
      const std::uint64_t halves[2] = {load_eight(from), load_eight(from + 8)};
      for (int k = 0; k < 4; ++k) words[k] |= halves[k % 2] >> (k / 2 * 4) & plane.mask();
      return;
    }
    std::uint64_t joined = 0;
    if (plane.width == 2) {
      joined = load_eight(from);
    } else {
      std::uint32_t single;
      __builtin_memcpy(&single, from, 4);
      // Includes the bits of elements 8k + 4 ….
      joined = std::uint64_t{single} | std::uint64_t{single} << 31;
    }
    for (int k = 0; k < 4; ++k) words[k] |= (joined >> (2 * k) & plane.mask()) << plane.lowest;
  });
  __builtin_memcpy(n, words, sizeof words);
}

}  // namespace bl::cpu::BL_ISA
