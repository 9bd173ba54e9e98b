#pragma once
#include <cstdint>
#include <vector>

#include "backend/cuda/layout/code_matrix.h"
#include "format/weight_matrix.h"

namespace bl::cuda {

// Rows of so many channels on, and of fewer columns than channels, are taken in two parts by a
// product of one token (partials_left): there each of its CTAs would make digits of a long row for
// few strips. Measured: bench/ladder/exl2_gemv.
inline constexpr std::int64_t kLongRow = 5120;

// Chunks in pairs; nothing where few of them have a neighbour to go with.
struct PairTables {
  std::vector<KBlockPair> pairs;
  std::vector<CopyBlock> copy_blocks;  // the same pieces, whose chunks are pairs
};

// What kernels look up of a strip, or of a part of one, and of its input.
struct NTileTables {
  std::vector<KBlock> k_blocks;
  std::vector<CopyBlock> copy_blocks;
  std::vector<LimbRun> runs;
  PairTables paired;
  // Where a channel's activation lies (fragment_offset of its slot), [in] and zeros up to a
  // multiple of 4; empty where 16 bits do not hold the places, or a channel has none.
  std::vector<std::uint16_t> fragment_offset_of_feature;
};

// A run of a strip's chunks as if it were all of the strip: units, chunks and offsets count from
// its own beginning; channels of other parts have the place behind the slots of the longest.
struct NTileKSplit : NTileTables {
  std::int32_t k_steps = 0;
  std::int64_t first_byte = 0;  // of the strip
};

// How the slots of a packed matrix come about: pure arithmetic on the file's groups, made before
// anything is allocated.
struct CodePackPlan : NTileTables {
  std::int64_t in = 0;
  std::int64_t out = 0;         // columns that are written
  std::int64_t stored_out = 0;  // columns of the file
  ScaleKind kind = ScaleKind::kExl2;
  std::int32_t zero = 0;
  std::vector<std::int32_t> feature_of_k;     // [units · 32], −1 where a unit is padded
  std::vector<std::int32_t> group_of_k_step;  // [units] row of the file's scales
  std::vector<std::int32_t> bits_of_k_step;   // [units]
  std::vector<std::int32_t> word_of_k_step;   // [units] first word row, kExl2 only
  std::int32_t groups = 0;                    // rows of scales
  // Two that take a product of one token about as long, or none.
  std::vector<NTileKSplit> k_splits;

  std::int64_t k_steps() const { return static_cast<std::int64_t>(group_of_k_step.size()); }
  // That occur.
  WidthSet widths() const;
  std::int64_t n_tiles() const { return (out + kNTileColumns - 1) / kNTileColumns; }
  std::int64_t n_tile_bytes() const;
  std::size_t code_bytes() const { return static_cast<std::size_t>(n_tiles() * n_tile_bytes()); }
  std::size_t scale_bytes_total() const {
    return static_cast<std::size_t>(n_tiles() * scale_stride(kind, groups));
  }
  // The most that a piece takes: of codes, and of scales with what 16-byte copies bring along.
  std::uint32_t max_copy_block_bytes() const;
  std::uint32_t max_copy_block_scale_bytes() const;
  // Where the packing kernels write each unit, in words from the beginning of its strip.
  std::vector<std::int64_t> k_step_offsets() const;

  // The device memory of the matrix: codes at its beginning, then these, in bytes from there.
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
    std::vector<TableOffsets> k_splits;
    std::size_t total = 0;
    // Where all that is neither codes nor scales begins.
    std::size_t tables() const { return k_blocks; }
  };
  Layout layout() const;
};

// `out`: columns to keep.
CodePackPlan plan_codes(const Exl2Matrix& matrix, std::int64_t out);
CodePackPlan plan_codes(const GptqMatrix& matrix, std::int64_t out);

}  // namespace bl::cuda
