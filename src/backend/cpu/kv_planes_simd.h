#pragma once
// Codes of a group in planes of bits (ops/kv_codec.h), of any width, by words of eight bytes:
// shifts that stay inside each byte need no vectors.

#include <cstdint>

#include "ops/kv_layout.h"

namespace bl::cpu::BL_ISA {

inline std::uint64_t load_eight(const std::uint8_t* p) {
  std::uint64_t bytes;
  __builtin_memcpy(&bytes, p, 8);
  return bytes;
}

struct Plane {
  int width = 0;   // bits of an element
  int lowest = 0;  // of the code's bits that it holds
  int begin = 0;   // where it lies in the group
  int bytes = 0;

  std::uint64_t mask() const { return 0x0101010101010101u * ((1u << width) - 1u); }
};

// body(plane) for the planes of a group of `count` elements, as kKvPlanes has them. Nothing here
// may be a function that other instruction sets share.
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

// Codes n[32] of fewer than eight bits → the bytes of a group of `count`; n[i] = h behind them.
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

inline int code_in_group(const std::uint8_t* codes, int bits, int count, int i) {
  unsigned n = 0;
  for_planes(bits, count, [&](const Plane& plane) {
    const unsigned joined = codes[plane.begin + i % plane.bytes];
    const unsigned part = joined >> (plane.width * (i / plane.bytes)) & ((1u << plane.width) - 1u);
    n |= part << plane.lowest;
  });
  return static_cast<int>(n);
}

// The same of a whole group. Elements 8k … 8k + 7 are the bytes of word k. A plane of single bits
// has four bytes: those of elements 8k … 8k + 3 are bit 2k of its bytes, of the others bit 2k + 1.
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

// codes → n[32].
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
      joined = std::uint64_t{single} | std::uint64_t{single} << 31;  // the upper four's bit, too
    }
    for (int k = 0; k < 4; ++k) words[k] |= (joined >> (2 * k) & plane.mask()) << plane.lowest;
  });
  __builtin_memcpy(n, words, sizeof words);
}

}  // namespace bl::cpu::BL_ISA
