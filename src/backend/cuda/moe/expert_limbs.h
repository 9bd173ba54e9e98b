#pragma once
// The sizes of packed rows for expert_stream_gemm(), for kernels and host; and the launch that
// packs them. expert_limbs.cuh says how they lie.

#include "backend/cuda/moe/expert_matrix.h"
#include "ops/exec_context.h"

namespace bl::cuda {

inline constexpr int kLimbRows = 4;  // rows that one mma.m16n8k32 multiplies
inline constexpr int kLimbRowBytes = 2 * kKStepSize;
inline constexpr int kLimbEntryBytes = 8;

// Bytes of a k_step's record of a block with so many live rows; a multiple of 16.
BL_HD constexpr int limb_record_bytes(int live) {
  return live * kLimbRowBytes + (live * kLimbEntryBytes + 15) / 16 * 16;
}
// Bytes from one block's records to the next block's.
BL_HD constexpr std::int64_t limb_block_bytes(int block_rows, int k_steps) {
  return std::int64_t{k_steps} * limb_record_bytes(block_rows);
}

// Packs rows for one matrix of each expert. Choices that were not sorted (rows.row_of_choice is
// null) are blocks of one row each, and weigh nothing if their expert does not exist.
struct ExpertLimbArgs {
  ExpertRows rows;
  const ExpertMatrix* table = nullptr;  // [experts]
  const float* x = nullptr;             // [tokens, in], or [rows, in]
  std::int64_t x_stride = 0;            // elements
  bool x_of_tokens = false;
  bool weigh = false;         // rows are multiplied by the weights of their choices
  std::int32_t k_steps = 0;   // of an n_tile: the most that any expert has
  std::int32_t k_blocks = 0;  // likewise
  // Whether the tables of all experts are prefetched while the router computes.
  bool prefetches = false;
  std::byte* limbs = nullptr;  // out: [blocks] of limb_block_bytes()
};
void pack_expert_limbs(ExecContext& ctx, const ExpertLimbArgs& args);

}  // namespace bl::cuda
