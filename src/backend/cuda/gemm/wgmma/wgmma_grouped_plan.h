#pragma once
// How a grouped wgmma GEMM (experts with many rows, compute capability 9.0) is divided among CTAs.
// Rows are sorted by group, and each group has a matrix of its own. The host knows no group's
// number of rows: a kernel in front writes a list of row tiles, and the persistent CTAs walk over
// row tiles × column tiles from it.
//
// Tiles, warp roles and pipeline stages are those of wgmma_plan.h, with these differences. The host
// chooses how many rows a row tile has from the average number of rows of a group, since a wgmma of
// fewer columns costs less. Tables of k_steps are read from global memory, since every tile may
// have another matrix. The scale producers write a header into each stage, so that consumer warps
// need to look up nothing.

#include <cstdint>
#include <optional>

#include "backend/cuda/gemm/wgmma/wgmma_plan.h"

namespace bl::cuda {

// A tile of kTileRows rows × 128 columns.
template <int kTileRows>
struct GroupedShape : WgmmaShape<256> {
  static_assert(kTileRows % 32 == 0 && kTileRows <= 256);
  static constexpr int kRows = kTileRows;
  static constexpr int kKTileBytes = kRows * kKTileKSteps * kKStepSize * 2;
  static constexpr int kRowsBytes = kIterKTiles * kKTileBytes;
};

// Calls f(GroupedShape) with the shape of tiles of `tile_rows` rows, one of kGroupedTileRows.
inline constexpr int kGroupedTileRows[] = {64, 128, 160, 192, 256};
template <class F>
auto with_grouped_shape(int tile_rows, const F& f) {
  switch (tile_rows) {
    case 64:
      return f(GroupedShape<64>{});
    case 128:
      return f(GroupedShape<128>{});
    case 160:
      return f(GroupedShape<160>{});
    case 192:
      return f(GroupedShape<192>{});
    default:
      return f(GroupedShape<256>{});
  }
}

// Returns the rows of a row tile that cost least if `rows` rows are in `groups` groups by chance.
int choose_tile_rows(std::int64_t rows, std::int64_t groups);

// A row tile, as the kernel that sorts rows writes it. Each row tile of a group says how all row
// tiles of that group lie.
struct alignas(16) WgmmaRowTile {
  std::int32_t group = 0;
  std::int32_t first_tile = 0;  // the group's first row tile
  std::int32_t tiles = 0;       // row tiles of the group
  std::int32_t first_row = 0;   // of the group
  std::int32_t rows = 0;        // of the group
  std::int32_t unused[3] = {};
};
static_assert(sizeof(WgmmaRowTile) == 32);

// What consumer warps need to know of a pipeline stage; in shared memory.
struct alignas(16) WgmmaStageHeader {
  std::uint32_t widths[2];  // of the k_steps of each matrix, a byte each
  std::int32_t k_iters;     // stages of the tile
  std::int32_t unused;
  std::int32_t first_row;  // of the tile
  std::int32_t rows;
  std::int32_t first_n_tile;
  std::int32_t also_unused;
};
inline constexpr int kStageHeaderBytes = 32;
static_assert(sizeof(WgmmaStageHeader) == kStageHeaderBytes);

// The most row tiles that `rows` rows in `groups` groups can have.
constexpr std::int64_t most_row_tiles(std::int64_t rows, std::int64_t groups,
                                      std::int64_t tile_rows) {
  return rows / tile_rows + (rows < groups ? rows : groups);
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
  std::int32_t tile_rows = 256;                  // of kGroupedTileRows
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
