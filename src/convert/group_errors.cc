#include "convert/group_errors.h"

#include <algorithm>

#include "format/bit_codec.h"
#include "ops/grid_math.h"

namespace bl {

void group_errors(const GroupPanel& panel, const ColumnGrids& grids, ColumnLanes& errors) {
  const auto last = static_cast<float>(code_mask(panel.bits));
  ColumnLanes inverse, low, high;
  for (std::size_t c = 0; c < inverse.size(); ++c) {
    inverse[c] = grids.scale[c] > 0.0f ? 1.0f / grids.scale[c] : 0.0f;
    low[c] = -grids.zero[c];
    high[c] = last - grids.zero[c];
    errors[c] = 0.0f;
  }
  ColumnLanes row{};
  for (std::size_t r = 0; r < panel.importance.size(); ++r) {
    const float* weights = panel.weights + static_cast<std::int64_t>(r) * panel.stride;
    std::copy(weights, weights + panel.columns, row.begin());
    const float importance = panel.importance[r];
    for (std::size_t c = 0; c < row.size(); ++c) {
      const float code = round_even(std::min(std::max(row[c] * inverse[c], low[c]), high[c]));
      const float error = row[c] - code * grids.scale[c];
      errors[c] += importance * error * error;
    }
  }
}

}  // namespace bl
