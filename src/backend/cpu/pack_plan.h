#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/cpu_matrix.h"
#include "format/weight_matrix.h"

namespace bl::cpu {

// Which slots go where in a packed matrix: pure arithmetic on the file's groups, done before
// anything is allocated.
struct PackPlan {
  // A piece of a group; long groups are cut so that sums fit 32 bits.
  struct Segment {
    std::int64_t group = 0;
    int bits = 0;
    std::int64_t first = 0;  // its first slot, counted in the file's slots, without padding
    std::int64_t slots = 0;  // without padding, which the last unit may have
    std::int64_t units() const { return (slots + kUnitSlots - 1) / kUnitSlots; }
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
  // `channel_of` [slots] is the channel of each slot of the file.
  ActivationLayout layout(const std::vector<std::int32_t>& channel_of) const;
};

PackPlan plan_packing(const Exl2Matrix& matrix);
PackPlan plan_packing(const GptqMatrix& matrix);

// Returns the channels sorted by group, in order within a group: the slots of a GPTQ matrix
// (docs/formats/gptq.md §7).
std::vector<std::int32_t> sorted_channels(const GptqMatrix& matrix);

constexpr std::int64_t tiles_of(std::int64_t columns) {
  return (columns + kTileColumns - 1) / kTileColumns;
}

}  // namespace bl::cpu
