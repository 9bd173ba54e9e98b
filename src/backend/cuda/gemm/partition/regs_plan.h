#pragma once
// How a matrix is cut among the warps of a CTA that hold their activations in registers
// (gemm_skinny_regs.h): pure host arithmetic, tested without a card.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

inline constexpr int kRegsWarps = 16;
inline constexpr int kQuadKSteps = 4;
inline constexpr int kWarpQuads = 2;
inline constexpr int kWarpKSteps = kWarpQuads * kQuadKSteps;  // whose activations a warp holds
inline constexpr int kKSplitQuads = kRegsWarps * kWarpQuads;

// Up to four units, of one or two runs that lie side by side in a strip. Consecutive units of one
// chunk are multiplied together; a quad may begin or end within a chunk.
struct alignas(16) RegsQuad {
  std::uint32_t codes = 0;        // of its first run, from the strip's beginning, in 64 bytes
  std::uint16_t split = 0;        // 16-byte pieces of the first run
  std::uint16_t copy_blocks = 0;  // of both
  std::int32_t jump = 0;          // bytes between the runs
  std::uint32_t info = 0;         // see k_step_bits() and what follows it

  std::uint16_t k_step[kQuadKSteps] = {};
  std::uint16_t k_block[kQuadKSteps] = {};

  std::uint16_t group[kQuadKSteps] = {};
  std::uint16_t unused[4] = {};
};
static_assert(sizeof(RegsQuad) == 48);

// Of RegsQuad::info. 0 bits: there is no such unit, nor one behind it.
BL_HD constexpr int k_step_bits(std::uint32_t info, int k_step) {
  return static_cast<int>(info >> (4 * k_step) & 15u);
}
BL_HD constexpr bool begins_k_block(std::uint32_t info, int k_step) {
  return (info >> (16 + k_step) & 1u) != 0;
}
BL_HD constexpr bool ends_k_block(std::uint32_t info, int k_step) {
  return (info >> (20 + k_step) & 1u) != 0;
}
// Four units of so many bits, of one chunk or not.
BL_HD constexpr std::uint32_t info_of_bits(int bits) {
  return 0x1111u * static_cast<std::uint32_t>(bits);
}
BL_HD constexpr std::uint32_t info_of_whole(int bits) {
  return info_of_bits(bits) | 1u << 16 | 8u << 20;
}

struct RegsTiling {
  // Of a strip and warp, in any part.
  std::array<std::int32_t, kRegsWarps> code_bytes{};
  // Slots are cut into so many parts, each for CTAs of its own; 0: they cannot be.
  int k_splits = 0;
  // The warps of the upper half have so much less to multiply that they alone add up sums.
  bool upper_adds = false;
};

struct RegsPlan : RegsTiling {
  std::vector<RegsQuad> quads;  // [parts][kRegsWarps][kWarpQuads], empty ones without pieces
};

// Whether CTAs have so little to multiply of `all` units, or their warps to hold of a strip's
// `units`, that what a launch does once weighs most.
bool is_small_cta_range(int k_steps, std::int64_t all, int ctas);

// `strips` of the matrix for `ctas` CTAs. max_k_splits 1: all slots in one part, or no plan (parts
// is 0 then).
RegsPlan plan_regs(std::span<const KBlock> k_blocks, int n_tiles, int ctas, int max_k_splits);

}  // namespace bl::cuda
