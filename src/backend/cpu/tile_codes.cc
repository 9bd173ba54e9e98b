#include "backend/cpu/tile_codes.h"

#include <cstring>

namespace bl::cpu {
namespace {

// Planes of a code, low bits first.
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

// The lowest `bits` bits of each of the four bytes.
constexpr std::uint32_t byte_mask(int bits) { return ((1u << bits) - 1u) * 0x01010101u; }

}  // namespace

void write_unit(const UnitCodes& codes, int bits, std::uint8_t* unit) {
  const Planes planes = planes_of(bits);
  int shift = 0;
  for (int p = 0; p < planes.count; ++p) {
    const int width = planes.bits[p];
    const int per_vector = 8 / width;
    for (int v = 0; v < width; ++v) {
      std::uint32_t lanes[kTileColumns] = {};
      for (int i = 0; i < per_vector; ++i) {
        const std::uint32_t* quad = codes.quads[v * per_vector + i];
        for (int c = 0; c < kTileColumns; ++c) {
          lanes[c] |= ((quad[c] >> shift) & byte_mask(width)) << (i * width);
        }
      }
      std::memcpy(unit, lanes, sizeof lanes);
      unit += sizeof lanes;
    }
    shift += width;
  }
}

UnitCodes read_unit(const std::uint8_t* unit, int bits) {
  UnitCodes codes;
  const Planes planes = planes_of(bits);
  int shift = 0;
  for (int p = 0; p < planes.count; ++p) {
    const int width = planes.bits[p];
    const int per_vector = 8 / width;
    for (int v = 0; v < width; ++v) {
      std::uint32_t lanes[kTileColumns];
      std::memcpy(lanes, unit, sizeof lanes);
      unit += sizeof lanes;
      for (int i = 0; i < per_vector; ++i) {
        std::uint32_t* quad = codes.quads[v * per_vector + i];
        for (int c = 0; c < kTileColumns; ++c) {
          quad[c] |= ((lanes[c] >> (i * width)) & byte_mask(width)) << shift;
        }
      }
    }
    shift += width;
  }
  return codes;
}

}  // namespace bl::cpu
