#pragma once
// How quantized weights lie on the card (docs/adr/0012): for host and device, nothing allocates.
//
// A matrix is cut into strips of 64 output columns; a strip is one stream along the slots: units of
// 64 columns × 32 slots, 256 · bits bytes each. A unit holds its codes in the order of the A
// operand of mma.m16n8k16 (columns are the rows of A), split into planes of 4, 2 or 1 bits, so that
// every lane reads aligned 16- or 8-byte words in all widths:
//   2 = [2]   3 = [2, 1]   4 = [4]   5 = [4, 1]   6 = [4, 2]   8 = [4 high, 4 low]
// (low bits first but for 8). Plane bytes: 1024 for 4 bits, 512 for 2, 256 for 1.
//
// Within a unit, lane l = 4g + t (g < 8, t < 4) holds 64 codes, named (i, h, s, r, e):
//   column 16i + 8h + g, slot 16s + 8r + 2t + e.
// Place of a code in its plane: bit 16e + 8r + 4s + …, so that one mask finds the pair e = 0, 1 as
// two subnormal halves; the codes of s = 1 come out 16 times too large, which activations of s = 1
// make good by being stored divided by 16.

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace bl::cuda {

inline constexpr int kStripColumns = 64;
inline constexpr int kUnitSlots = 32;
inline constexpr int kMaxChunkBytes = 4096;
inline constexpr int kMaxChunkUnits = 4;
// Units of a chunk that is not the rest of a group.
BL_HD constexpr int full_chunk_units(int bits) {
  const int fitting = kMaxChunkBytes / (256 * bits);
  return fitting < kMaxChunkUnits ? fitting : kMaxChunkUnits;
}

BL_HD constexpr int unit_bytes(int bits) { return 256 * bits; }

// One code of a lane, as named above.
struct CodeName {
  int i, h, s, r, e;
};

struct CodePlace {
  int word;  // of the plane, 32-bit words; lanes' words are interleaved as they are loaded
  int bit;
};

// Where a code of lane `lane` lies in a plane of `plane_bits` bits.
BL_HD constexpr CodePlace place_in_plane(int plane_bits, int lane, const CodeName& n) {
  const int pair = 16 * n.e + 8 * n.r + 4 * n.s;
  if (plane_bits == 4) {  // [2][32 lanes][4 words]: word (i & 1, h) of half i >> 1
    return {(n.i >> 1) * 128 + lane * 4 + 2 * (n.i & 1) + n.h, pair};
  }
  if (plane_bits == 2) return {lane * 4 + n.i, pair + 2 * n.h};  // [32 lanes][4 words]
  return {lane * 2 + (n.i >> 1), pair + 2 * n.h + (n.i & 1)};    // [32 lanes][2 words]
}

// The inverse: which code starts at bit `bit` of word `word`.
struct PlacedCode {
  int lane;
  CodeName name;
};
BL_HD constexpr PlacedCode code_at(int plane_bits, int word, int bit) {
  PlacedCode p{};
  p.name.e = bit / 16;
  p.name.r = bit / 8 % 2;
  p.name.s = bit / 4 % 2;
  if (plane_bits == 4) {
    p.lane = word % 128 / 4;
    p.name.i = word / 128 * 2 + word % 4 / 2;
    p.name.h = word % 2;
  } else if (plane_bits == 2) {
    p.lane = word / 4;
    p.name.i = word % 4;
    p.name.h = bit / 2 % 2;
  } else {
    p.lane = word / 2;
    p.name.h = bit / 2 % 2;
    p.name.i = word % 2 * 2 + bit % 2;
  }
  return p;
}

// The planes of a width, in the order they lie in a unit.
struct Plane {
  int bits;
  int shift;   // of its bits within a code
  int offset;  // bytes from the unit's start
};
BL_HD constexpr int plane_count(int bits) { return bits == 2 || bits == 4 ? 1 : 2; }
BL_HD constexpr Plane plane_of(int bits, int index) {
  if (bits == 8) return {4, index == 0 ? 4 : 0, index * 1024};
  const int low = bits >= 4 ? 4 : 2;
  return index == 0 ? Plane{low, 0, 0} : Plane{bits - low, low, 256 * low};
}

BL_HD constexpr int column_in_unit(int lane, const CodeName& n) {
  return 16 * n.i + 8 * n.h + lane / 4;
}
BL_HD constexpr int slot_in_unit(int lane, const CodeName& n) {
  return 16 * n.s + 8 * n.r + 2 * (lane % 4) + n.e;
}

enum class ScaleKind : std::uint8_t {
  kExl2,         // 4-bit codes of the column, a maximum a group, fixed centre
  kGptq,         // binary16 scale a column and group, fixed zero
  kGptqZeros4,   // and 4-bit zero points, to which the matrix's `zero` is added
  kGptqZeros16,  // and 16-bit zero points
};

// A few units of one group, kMaxChunkBytes at most: what a warp takes at a time.
struct Chunk {
  std::uint32_t offset = 0;      // bytes from the strip's start, in 256
  float group_scale = 0;         // s(g) of kExl2
  std::uint16_t first_unit = 0;  // of the strip
  std::uint16_t group = 0;
  std::uint8_t bits = 0;
  std::uint8_t units = 0;
  std::uint8_t ends_group = 0;  // the next chunk has other scales
  std::uint8_t ends_strip = 0;
};
static_assert(sizeof(Chunk) == 16);

// Bytes of the scales of one strip and group, a multiple of 16: 8 words of codes; or 64 halves, and
// 8 words or 64 halfwords of zero points. Column 16i + 8h + g is entry 2i + h of word (or run of
// eight) g.
BL_HD constexpr int scale_bytes(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kExl2:
      return 32;
    case ScaleKind::kGptq:
      return 128;
    case ScaleKind::kGptqZeros4:
      return 160;
    default:
      return 256;
  }
}
BL_HD constexpr int scale_entry(int column) {
  return column % 8 * 8 + 2 * (column / 16) + column / 8 % 2;
}

// A packed matrix as kernels see it; all pointers are device memory.
struct CodeMatrixView {
  const std::byte* codes = nullptr;   // [strips][strip_bytes]
  const std::byte* scales = nullptr;  // [strips][groups][scale_bytes]
  const Chunk* chunks = nullptr;      // [chunk_count], of any strip
  std::int64_t strip_bytes = 0;
  std::int32_t strips = 0;
  std::int32_t chunk_count = 0;
  std::int32_t groups = 0;
  std::int32_t units = 0;  // of a strip
  std::int32_t out = 0;    // columns that are written
  std::int32_t zero = 0;   // kGptq: the zero point; kGptqZeros4: added to the 4-bit values
  ScaleKind kind = ScaleKind::kExl2;
};

}  // namespace bl::cuda
