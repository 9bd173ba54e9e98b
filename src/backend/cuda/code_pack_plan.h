#pragma once
#include <cstdint>
#include <vector>

#include "backend/cuda/code_matrix.h"
#include "format/weight_matrix.h"

namespace bl::cuda {

// How the slots of a packed matrix come about: pure arithmetic on the file's groups, made before
// anything is allocated.
struct CodePackPlan {
  std::int64_t in = 0;
  std::int64_t out = 0;         // columns that are written
  std::int64_t stored_out = 0;  // columns of the file
  ScaleKind kind = ScaleKind::kExl2;
  std::int32_t zero = 0;
  std::vector<std::int32_t> channel_of_slot;  // [units · 32], −1 where a unit is padded
  std::vector<std::int32_t> group_of_unit;    // [units] row of the file's scales
  std::vector<std::int32_t> bits_of_unit;     // [units]
  std::vector<std::int32_t> word_of_unit;     // [units] first word row, kExl2 only
  std::vector<Chunk> chunks;                  // of a strip
  std::int32_t groups = 0;                    // rows of scales

  std::int64_t units() const { return static_cast<std::int64_t>(group_of_unit.size()); }
  std::int64_t strips() const { return (out + kStripColumns - 1) / kStripColumns; }
  std::int64_t strip_bytes() const;
  std::size_t code_bytes() const { return static_cast<std::size_t>(strips() * strip_bytes()); }
  std::size_t scale_bytes_total() const {
    return static_cast<std::size_t>(strips() * groups) *
           static_cast<std::size_t>(scale_bytes(kind));
  }
  // What a warp pays for a chunk, in units of 256 bytes.
  static std::uint32_t cost_of(const Chunk& chunk);
  std::uint32_t strip_cost() const;
  // Codes, scales, chunk and group tables, channel table.
  std::size_t device_bytes() const;
};

// `out`: columns to keep.
CodePackPlan plan_codes(const Exl2Matrix& matrix, std::int64_t out);
CodePackPlan plan_codes(const GptqMatrix& matrix, std::int64_t out);

}  // namespace bl::cuda
