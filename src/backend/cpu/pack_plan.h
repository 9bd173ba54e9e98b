#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/cpu_matrix.h"
#include "format/weight_matrix.h"

namespace bl::cpu {

// Where the slots of a packed matrix come from: pure arithmetic on the file's groups, made before
// anything is allocated.
struct PackPlan {
  // A piece of a group: long groups are cut so that 32-bit sums hold.
  struct Segment {
    std::int64_t group = 0;
    int bits = 0;
    std::int64_t first = 0;  // its first slot, counted in the file's slots (no padding)
    std::int64_t slots = 0;  // real ones; the last unit may be padded
    std::int64_t units() const { return (slots + kKStepSize - 1) / kKStepSize; }
  };
  std::vector<Segment> segments;
  std::vector<Band> bands;
  ScaleKind scale_kind = ScaleKind::kCodes;
  std::int32_t zero = 0;
  std::size_t codes_offset = 0;
  std::size_t tile_bytes = 0;

  std::size_t table_bytes() const {
    return scale_kind == ScaleKind::kCodes ? segments.size() * 16 * sizeof(float) : 0;
  }
  // `channel_of` [slots]: channel of each of the file's slots.
  ActivationLayout layout(const std::vector<std::int32_t>& channel_of) const;
};

PackPlan plan_packing(const Exl2Matrix& matrix);
PackPlan plan_packing(const GptqMatrix& matrix);

// Channels sorted by group, order kept within a group: the slots of a GPTQ matrix (spec §7).
std::vector<std::int32_t> sorted_channels(const GptqMatrix& matrix);

constexpr std::int64_t tiles_of(std::int64_t columns) {
  return (columns + kTileColumns - 1) / kTileColumns;
}

}  // namespace bl::cpu
