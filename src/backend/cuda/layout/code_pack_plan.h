#pragma once
#include <cstdint>
#include <vector>

#include "backend/cuda/layout/code_matrix.h"
#include "format/weight_matrix.h"

namespace bl::cuda {

// Matrices with at least so many input features, and fewer columns than features, get two k_splits
// for one token (partials_left in route.cc): with whole rows every CTA would make limbs of a long
// row for few n_tiles. Measured: bench/ladder/gemv_i8.
inline constexpr std::int64_t kLongRow = 5120;

// K_blocks in pairs; empty where few of them have a neighbour to pair with.
struct PairTables {
  std::vector<KBlockPair> pairs;
  std::vector<CopyBlock> copy_blocks;  // the same copy_blocks, counted in pairs
};

// What kernels look up about an n_tile, or one of its k_splits, and its input.
struct NTileTables {
  std::vector<KBlock> k_blocks;
  std::vector<CopyBlock> copy_blocks;
  std::vector<LimbRun> runs;
  PairTables paired;
  // fragment_offset() of each feature's k: [in], with zeros up to a multiple of 4. Empty if 16 bits
  // do not hold the offsets, or a feature has no k.
  std::vector<std::uint16_t> fragment_offset_of_feature;
};

// A run of an n_tile's k_blocks in the form of a whole n_tile: k_steps, k_blocks and offsets count
// from its own beginning. Features of the other k_split have the offset behind the last k of the
// longest.
struct NTileKSplit : NTileTables {
  std::int32_t k_steps = 0;
  std::int64_t first_byte = 0;  // in the n_tile
};

// How the k of a packed matrix are chosen: pure arithmetic on the file's groups, before anything is
// allocated.
struct CodePackPlan : NTileTables {
  std::int64_t in = 0;
  std::int64_t out = 0;         // columns that are kept
  std::int64_t stored_out = 0;  // columns in the file
  ScaleKind kind = ScaleKind::kExl2;
  std::int32_t zero = 0;
  std::vector<std::int32_t> feature_of_k;     // [k_steps · 32], −1: padding
  std::vector<std::int32_t> group_of_k_step;  // [k_steps] row of the file's scales
  std::vector<std::int32_t> bits_of_k_step;   // [k_steps]
  std::vector<std::int32_t> word_of_k_step;   // [k_steps] first word row, kExl2 only
  std::int32_t groups = 0;                    // rows of scales
  // Two k_splits of about equal cost for the GEMV, or none.
  std::vector<NTileKSplit> k_splits;

  std::int64_t k_steps() const { return static_cast<std::int64_t>(group_of_k_step.size()); }
  // Returns the code widths that occur.
  WidthSet widths() const;
  std::int64_t n_tiles() const { return (out + kNTileColumns - 1) / kNTileColumns; }
  std::int64_t n_tile_bytes() const;
  std::size_t code_bytes() const { return static_cast<std::size_t>(n_tiles() * n_tile_bytes()); }
  std::size_t scale_bytes_total() const {
    return static_cast<std::size_t>(n_tiles() * scale_stride(kind, groups));
  }
  // The most bytes that a copy_block has of codes, and of scales including what 16-byte copies
  // bring along.
  std::uint32_t max_copy_block_bytes() const;
  std::uint32_t max_copy_block_scale_bytes() const;
  // Returns where the packing kernels write each k_step, in words from the beginning of its n_tile.
  std::vector<std::int64_t> k_step_offsets() const;

  // The device memory of the matrix: codes first, then these tables, in bytes from the beginning.
  struct TableOffsets {
    std::size_t k_blocks = 0;
    std::size_t copy_blocks = 0;
    std::size_t runs = 0;
    std::size_t pairs = 0;
    std::size_t pair_copy_blocks = 0;
    std::size_t feature_offsets = 0;
  };
  struct Layout : TableOffsets {
    std::size_t scales = 0;
    std::size_t features = 0;
    std::size_t k_step_table = 0;
    std::vector<TableOffsets> k_splits;
    std::size_t total = 0;
    // Where everything that is neither codes nor scales begins.
    std::size_t tables() const { return k_blocks; }
  };
  Layout layout() const;
};

// `out`: columns to keep.
CodePackPlan plan_codes(const Exl2Matrix& matrix, std::int64_t out);
CodePackPlan plan_codes(const GptqMatrix& matrix, std::int64_t out);

}  // namespace bl::cuda
