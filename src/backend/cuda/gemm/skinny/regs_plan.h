#pragma once
// How a matrix is cut among the warps of a CTA that hold their activations in registers
// (held_product.h): pure host arithmetic, tested without a card.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

inline constexpr int kHeldWarps = 16;
inline constexpr int kQuadUnits = 4;
inline constexpr int kWarpQuads = 2;
inline constexpr int kPartQuads = kHeldWarps * kWarpQuads;

// Up to four units, of one or two runs that lie side by side in a strip. Consecutive units of one
// chunk are multiplied together; a quad may begin or end within a chunk.
struct alignas(16) HeldQuad {
  std::uint32_t codes = 0;   // of its first run, from the strip's beginning, in 64 bytes
  std::uint16_t split = 0;   // 16-byte pieces of the first run
  std::uint16_t pieces = 0;  // of both
  std::int32_t jump = 0;     // bytes between the runs
  std::uint32_t info = 0;    // see unit_bits() and what follows it

  std::uint16_t unit[kQuadUnits] = {};
  std::uint16_t chunk[kQuadUnits] = {};

  std::uint16_t group[kQuadUnits] = {};
  std::uint16_t unused[4] = {};
};
static_assert(sizeof(HeldQuad) == 48);

// Of HeldQuad::info. 0 bits: there is no such unit, nor one behind it.
BL_HD constexpr int unit_bits(std::uint32_t info, int unit) {
  return static_cast<int>(info >> (4 * unit) & 15u);
}
BL_HD constexpr bool begins_chunk(std::uint32_t info, int unit) {
  return (info >> (16 + unit) & 1u) != 0;
}
BL_HD constexpr bool ends_chunk(std::uint32_t info, int unit) {
  return (info >> (20 + unit) & 1u) != 0;
}
// Four units of so many bits, of one chunk or not.
BL_HD constexpr std::uint32_t info_of_bits(int bits) {
  return 0x1111u * static_cast<std::uint32_t>(bits);
}
BL_HD constexpr std::uint32_t info_of_whole(int bits) {
  return info_of_bits(bits) | 1u << 16 | 8u << 20;
}

struct HeldCut {
  // Of a strip and warp, in any part.
  std::array<std::int32_t, kHeldWarps> code_bytes{};
  // Slots are cut into so many parts, each for CTAs of its own; 0: they cannot be.
  int parts = 0;
  // The warps of the upper half have so much less to multiply that they alone add up sums.
  bool upper_adds = false;
};

struct HeldPlan : HeldCut {
  std::vector<HeldQuad> quads;  // [parts][kHeldWarps][kWarpQuads], empty ones without pieces
};

// Whether CTAs have so little to multiply of `all` units, or their warps to hold of a strip's
// `units`, that what a launch does once weighs most.
bool is_small_share(int units, std::int64_t all, int ctas);

// `strips` of the matrix for `ctas` CTAs. most_parts 1: all slots in one part, or no plan (parts
// is 0 then).
HeldPlan plan_held(std::span<const Chunk> chunks, int strips, int ctas, int most_parts);

}  // namespace bl::cuda
