#pragma once
// How a matrix is divided among the consumer warps of gemm_skinny_regs, which hold their
// activations in registers: pure host arithmetic, tested without a card.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

inline constexpr int kRegsWarps = 16;
inline constexpr int kQuadKSteps = 4;
inline constexpr int kWarpQuads = 2;
// K_steps whose activations a warp holds.
inline constexpr int kWarpKSteps = kWarpQuads * kQuadKSteps;
inline constexpr int kKSplitQuads = kRegsWarps * kWarpQuads;

// Up to four k_steps of one n_tile, in one or two runs of adjacent ones. Consecutive k_steps of one
// k_block are multiplied together; a quad may begin or end within a k_block.
struct alignas(16) RegsQuad {
  std::uint32_t codes = 0;             // where its first run begins in the n_tile, in 64 bytes
  std::uint16_t first_run_copies = 0;  // 16-byte copies of the first run
  std::uint16_t copies = 0;            // 16-byte copies of both runs
  std::int32_t jump = 0;               // bytes between the runs
  std::uint32_t info = 0;              // decoded by k_step_bits() and the functions below it

  std::uint16_t k_step[kQuadKSteps] = {};
  std::uint16_t k_block[kQuadKSteps] = {};

  std::uint16_t group[kQuadKSteps] = {};
  std::uint16_t unused[4] = {};
};
static_assert(sizeof(RegsQuad) == 48);

// Fields of RegsQuad::info. 0 bits: the quad ends before this k_step.
BL_HD constexpr int k_step_bits(std::uint32_t info, int k_step) {
  return static_cast<int>(info >> (4 * k_step) & 15u);
}
BL_HD constexpr bool begins_k_block(std::uint32_t info, int k_step) {
  return (info >> (16 + k_step) & 1u) != 0;
}
BL_HD constexpr bool ends_k_block(std::uint32_t info, int k_step) {
  return (info >> (20 + k_step) & 1u) != 0;
}
// Info of four k_steps of so many bits; the second function: that are one whole k_block.
BL_HD constexpr std::uint32_t info_of_bits(int bits) {
  return 0x1111u * static_cast<std::uint32_t>(bits);
}
BL_HD constexpr std::uint32_t info_of_whole(int bits) {
  return info_of_bits(bits) | 1u << 16 | 8u << 20;
}

struct RegsTiling {
  // The most bytes of codes that each warp has of one n_tile, in any k_split.
  std::array<std::int32_t, kRegsWarps> code_bytes{};
  // K is cut into so many k_splits, each with CTAs of its own; 0: the matrix cannot run like this.
  int k_splits = 0;
  // The upper half of the warps has so much less to multiply that it alone reduces the partial
  // sums.
  bool upper_half_reduces = false;
};

struct RegsPlan : RegsTiling {
  // [k_splits][kRegsWarps][kWarpQuads]; an unused quad has copies = 0.
  std::vector<RegsQuad> quads;
};

// Whether fixed costs dominate a launch: its CTAs have few of the `all` k_steps to multiply, or an
// n_tile has few `k_steps` for the warps to hold.
bool is_small_cta_range(int k_steps, std::int64_t all, int ctas);

// Plans `n_tiles` n_tiles for `ctas` CTAs. max_k_splits 1: all of K in one k_split, or no plan
// (k_splits is 0 then).
RegsPlan plan_regs(std::span<const KBlock> k_blocks, int n_tiles, int ctas, int max_k_splits);

}  // namespace bl::cuda
