#include "backend/cpu/tile_codes.h"

#include <cstring>

namespace bl::cpu {
namespace {

// The planes of a code, lowest bits first.
struct Planes {
  int count = 0;
  int bits[2] = {};
};

constexpr Planes planes_of(int bits) {
  switch (bits) {
    case 3:
      return {2, {2, 1}};
    case 5:
      return {2, {4, 1}};
    case 6:
      return {2, {4, 2}};
    default:
      return {1, {bits, 0}};
  }
}

// One vector of a plane: `width` bits, from bit `shift` on, of each code of the quads from
// `first_quad` on; one quad after another.
struct CodeVector {
  int first_quad = 0;
  int width = 0;
  int shift = 0;

  int quads() const { return 8 / width; }
  // Selects those bits in each of the four bytes of a lane.
  std::uint32_t mask() const { return ((1u << width) - 1u) * 0x01010101u; }
};

// Calls f(CodeVector) for the vectors of a unit, in order.
template <class F>
void for_each_vector(int bits, const F& f) {
  const Planes planes = planes_of(bits);
  int shift = 0;
  for (int p = 0; p < planes.count; ++p) {
    const int width = planes.bits[p];
    for (int v = 0; v < width; ++v) f(CodeVector{v * (8 / width), width, shift});
    shift += width;
  }
}

}  // namespace

void write_unit(const CodeFragment& codes, int bits, std::uint8_t* unit) {
  for_each_vector(bits, [&](const CodeVector& vector) {
    std::uint32_t lanes[kTileColumns] = {};
    for (int i = 0; i < vector.quads(); ++i) {
      const std::uint32_t* quad = codes.quads[vector.first_quad + i];
      for (int c = 0; c < kTileColumns; ++c) {
        lanes[c] |= ((quad[c] >> vector.shift) & vector.mask()) << (i * vector.width);
      }
    }
    std::memcpy(unit, lanes, sizeof lanes);
    unit += sizeof lanes;
  });
}

CodeFragment read_unit(const std::uint8_t* unit, int bits) {
  CodeFragment codes;
  for_each_vector(bits, [&](const CodeVector& vector) {
    std::uint32_t lanes[kTileColumns];
    std::memcpy(lanes, unit, sizeof lanes);
    unit += sizeof lanes;
    for (int i = 0; i < vector.quads(); ++i) {
      std::uint32_t* quad = codes.quads[vector.first_quad + i];
      for (int c = 0; c < kTileColumns; ++c) {
        quad[c] |= ((lanes[c] >> (i * vector.width)) & vector.mask()) << vector.shift;
      }
    }
  });
  return codes;
}

}  // namespace bl::cpu
