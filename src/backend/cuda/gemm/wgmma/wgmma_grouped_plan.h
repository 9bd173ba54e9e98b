#pragma once
// How a grouped wgmma GEMM (experts with many rows, compute capability 9.0) is divided among CTAs.
// Rows are sorted by group, and each group has a matrix of its own. The host knows no group's
// number of rows: a kernel in front writes a list of row tiles, and the persistent CTAs walk over
// row tiles × column tiles from it.
//
// Tiles, warp roles and pipeline stages are those of wgmma_plan.h, with these differences. A row
// tile has 64 to Shape::kRows rows, in steps of 64, and a wgmma of as many columns, so that groups
// of few rows do not pay for whole tiles. Tables of k_steps are read from global memory, since
// every tile may have another matrix. The scale producers write a header into each stage, so that
// consumer warps need to look up nothing.

#include <cstdint>
#include <optional>

#include "backend/cuda/gemm/wgmma/wgmma_plan.h"

namespace bl::cuda {

// The most rows of a row tile, and what numbers of rows are rounded up to.
inline constexpr int kGroupedTileRows = 256;
inline constexpr int kRowBlock = 64;

// A row tile, as the kernel that sorts rows writes it. Each row tile of a group says how all row
// tiles of that group lie.
struct alignas(16) WgmmaRowTile {
  std::int32_t group = 0;
  std::int32_t first_tile = 0;  // the group's first row tile
  std::int32_t tiles = 0;       // row tiles of the group
  std::int32_t first_row = 0;   // of the group
  std::int32_t rows = 0;        // of the group
  std::int32_t tile_rows = 0;   // of each row tile; the last one has the rest
  std::int32_t unused[2] = {};
};
static_assert(sizeof(WgmmaRowTile) == 32);

// What consumer warps need to know of a pipeline stage; in shared memory.
struct alignas(16) WgmmaStageHeader {
  std::uint32_t widths[2];  // of the k_steps of each matrix, a byte each
  std::int32_t row_blocks;  // of the tile
  std::int32_t is_last;     // whether the tile ends with this stage
  std::int32_t first_row;   // of the tile
  std::int32_t rows;
  std::int32_t first_n_tile;
  std::int32_t unused;
};
inline constexpr int kStageHeaderBytes = 32;
static_assert(sizeof(WgmmaStageHeader) == kStageHeaderBytes);

// Row tiles of a group of `rows` rows, and the rows of each.
BL_HD constexpr int row_tiles_of(int rows) {
  return (rows + kGroupedTileRows - 1) / kGroupedTileRows;
}
BL_HD constexpr int rows_of_tile(int rows) {
  const int tiles = row_tiles_of(rows);
  return tiles == 0 ? 0 : ((rows + tiles - 1) / tiles + kRowBlock - 1) / kRowBlock * kRowBlock;
}
// The most row tiles that `rows` rows in `groups` groups can have.
constexpr std::int64_t most_row_tiles(std::int64_t rows, std::int64_t groups) {
  return rows / kGroupedTileRows + (rows < groups ? rows : groups);
}

// out = *out_scale · rows · W of each row's group, or act(gate) · up of two matrices.
struct WgmmaGroupedArgs {
  // Matrix i of group g is the CodeMatrixView at views[i] + g · view_stride, in device memory. All
  // are EXL2 or all GPTQ, and have equally many columns; numbers of k_steps may differ.
  const std::byte* views[2] = {};
  std::int32_t view_stride = 0;
  std::int32_t count = 0;  // 2 with an activation: gate and up
  bool gptq = false;
  int widest = 8;                // bits of the widest codes
  std::int32_t k_steps = 0;      // of a row; a group may have fewer, then zeros follow
  std::int32_t out = 0;          // columns of one matrix
  const __half* rows = nullptr;  // [row_count][k_steps · 32], 16-byte aligned
  std::int64_t row_count = 0;
  const WgmmaRowTile* row_tiles = nullptr;       // device
  const std::int32_t* row_tile_count = nullptr;  // device
  const float* out_scale = nullptr;              // device
  float* to = nullptr;                           // [row_count, out], without an activation
  std::int64_t out_stride = 0;                   // elements
  WgmmaActivation activation;                    // of two matrices; its `gate` stays null
  bool activates() const { return count == 2; }
};

// A launch as the kernel gets it.
struct WgmmaGroupedLaunch {
  WgmmaGroupedArgs args;
  int column_tiles = 0;  // of all CTAs of a cluster
  int tile_n_tiles = 0;  // n_tiles of one matrix in a tile
  int stages = 0;
  int n_tile_room = 0;  // bytes of one n_tile's codes in a stage
  int scales_at = 0;    // in a stage, behind activations, codes and the header
  int stage_bytes = 0;
  std::uint32_t low_bits = kLowBits;  // see KTileDecoder
  std::uint32_t high_bits = kHighBits;
  int stores_at = 0;  // in shared memory: store_bytes for each consumer warp
  int store_bytes = 0;
};

struct WgmmaGroupedPlan {
  WgmmaGroupedLaunch launch;
  int bytes = 0;  // dynamic shared memory
};
// Plans the launch; nothing if the kernel cannot run it. Addresses are not read.
std::optional<WgmmaGroupedPlan> plan_wgmma_grouped(const DeviceFacts& facts,
                                                   const WgmmaGroupedArgs& args);

}  // namespace bl::cuda
