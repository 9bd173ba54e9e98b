#pragma once
// The search for the scales of one group: one binary16 maximum M for all columns, and for each
// column a 4-bit code n that scales it by (n + 1)²/256. Only what the format can hold is tried.

#include <array>
#include <cstdint>
#include <vector>

#include "convert/group_errors.h"
#include "convert/host_threads.h"
#include "ops/grid_math.h"

namespace bl {

// For each column: the weighted squared error at a ladder of scales around its largest weight.
struct ErrorCurves {
  std::vector<float> base;      // [columns] scale of the first, largest point
  std::vector<float> log_base;  // [columns] its logarithm to base 2
  std::vector<std::array<float, kCurvePoints>> errors;  // [columns]
  explicit ErrorCurves(std::int64_t columns)
      : base(static_cast<std::size_t>(columns)), log_base(base.size()), errors(base.size()) {}
};
// Fills the curves of columns [first, first + panel.columns).
void measure_curves(const GroupPanel& panel, std::int64_t first, ErrorCurves& curves);

// The maximum, as binary16 bits, with the least error over all columns according to the curves.
std::uint16_t choose_scale_max(const HostThreads& threads, const ErrorCurves& curves);

// The code of each column with the least error, measured at the exact scales near the one that the
// curve prefers. `codes` has panel.columns elements.
void choose_scale_codes(const GroupPanel& panel, std::int64_t first, const ErrorCurves& curves,
                        std::uint16_t scale_max, std::uint8_t* codes);

// The 16 scales that a group with this maximum can give to a column.
std::array<float, 16> column_scales(std::uint16_t scale_max);

}  // namespace bl
