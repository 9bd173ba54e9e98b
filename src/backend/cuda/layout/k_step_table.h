#pragma once
// The table of a matrix's k_steps that the wgmma GEMMs read: where the codes of each k_step begin,
// its group and its width. For host and device; the host makes it when a matrix is packed.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

// One k_step of any n_tile.
struct alignas(16) KStepEntry {
  std::uint32_t offset = 0;  // of its codes in the n_tile, in 64 bytes
  float group_scale = 0;
  std::uint16_t group = 0;
  std::uint8_t bits = 0;
};
static_assert(sizeof(KStepEntry) == 16);

// K_steps of one pipeline stage of a wgmma GEMM, at most.
inline constexpr int kMostIterKSteps = 4;

// Entries behind the last k_step have 0 bits, so that a pipeline stage may read past the end.
BL_HD constexpr int k_step_entries(int k_steps) {
  return (k_steps / kMostIterKSteps + 2) * kMostIterKSteps;
}
// The entries, then a byte with the width of each; a multiple of 16.
BL_HD constexpr int k_step_table_bytes(int k_steps) {
  return k_step_entries(k_steps) * (static_cast<int>(sizeof(KStepEntry)) + 1) / 16 * 16 + 16;
}

// A table in memory.
struct KStepTable {
  const KStepEntry* entries = nullptr;  // by k_step
  // By k_tile: the widths of its two k_steps, a byte each; 4-aligned.
  const std::uint16_t* widths = nullptr;

  BL_HD KStepTable(const std::byte* at, int k_steps)
      : entries(reinterpret_cast<const KStepEntry*>(at)),
        widths(reinterpret_cast<const std::uint16_t*>(entries + k_step_entries(k_steps))) {}
};

// Returns the bytes of the table of a matrix whose n_tiles have these k_blocks.
std::vector<std::byte> make_k_step_table(const std::vector<KBlock>& k_blocks, int k_steps,
                                         std::int64_t n_tile_bytes);

}  // namespace bl::cuda
