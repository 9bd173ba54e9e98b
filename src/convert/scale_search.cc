#include "convert/scale_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "format/exl2_scale.h"
#include "ops/grid_math.h"
#include "tensor/float16.h"

namespace bl {
namespace {

// The grids of EXL2, which are symmetric, with these scales.
ColumnGrids centered_grids(const GroupPanel& panel, const ColumnLanes& scale) {
  ColumnGrids grids{scale, {}};
  grids.zero.fill(static_cast<float>(exl2_center(panel.bits)));
  return grids;
}

// The place in a curve with the least error, as a scale.
float best_scale(const ErrorCurves& curves, std::size_t column) {
  const auto& errors = curves.errors[column];
  const auto best = std::min_element(errors.begin(), errors.end());
  return curves.base[column] * curve_ratio(static_cast<int>(best - errors.begin()));
}

// Σ over the columns of the error at the better of the two codes around each column's best scale.
double error_of_max(const ErrorCurves& curves, std::span<const float> wanted, float scale_max) {
  std::array<float, 16> code_logs;
  for (std::size_t code = 0; code < code_logs.size(); ++code) {
    code_logs[code] = code_log(static_cast<int>(code));
  }
  const TriedMaximum maximum{scale_max, std::log2(scale_max), code_logs.data()};
  double sum = 0.0;
  for (std::size_t c = 0; c < wanted.size(); ++c) {
    if (wanted[c] <= 0.0f) continue;
    const auto errors = [&](int point) {
      return curves.errors[c][static_cast<std::size_t>(point)];
    };
    sum += error_with_maximum(errors, curves.log_base[c], wanted[c], maximum);
  }
  return sum;
}

}  // namespace

std::array<float, 16> column_scales(std::uint16_t scale_max) {
  std::array<float, 16> scales{};
  const float group_scale = exl2_group_scale(scale_max);
  for (std::uint32_t code = 0; code < scales.size(); ++code) {
    scales[code] = exl2_column_scale(group_scale, code);
  }
  return scales;
}

void measure_curves(const GroupPanel& panel, std::int64_t first, ErrorCurves& curves) {
  ColumnLanes base{};
  for (std::size_t r = 0; r < panel.importance.size(); ++r) {
    const float* weights = panel.weights + static_cast<std::int64_t>(r) * panel.stride;
    for (std::int64_t c = 0; c < panel.columns; ++c) {
      float& largest = base[static_cast<std::size_t>(c)];
      largest = std::max(largest, std::abs(weights[c]));
    }
  }
  const float steps = static_cast<float>(exl2_center(panel.bits)) - 0.5f;
  for (float& value : base) value *= kCurveFirst / steps;
  ColumnLanes scale, errors;
  for (int point = 0; point < kCurvePoints; ++point) {
    const float ratio = curve_ratio(point);
    for (std::size_t c = 0; c < scale.size(); ++c) scale[c] = base[c] * ratio;
    group_errors(panel, centered_grids(panel, scale), errors);
    for (std::int64_t c = 0; c < panel.columns; ++c) {
      curves.errors[static_cast<std::size_t>(first + c)][static_cast<std::size_t>(point)] =
          errors[static_cast<std::size_t>(c)];
    }
  }
  for (std::int64_t c = 0; c < panel.columns; ++c) {
    curves.base[static_cast<std::size_t>(first + c)] = base[static_cast<std::size_t>(c)];
    curves.log_base[static_cast<std::size_t>(first + c)] =
        std::log2(base[static_cast<std::size_t>(c)]);
  }
}

std::uint16_t choose_scale_max(const HostThreads& threads, const ErrorCurves& curves) {
  std::vector<float> wanted(curves.base.size());
  float largest = 0.0f;
  for (std::size_t c = 0; c < wanted.size(); ++c) {
    wanted[c] = best_scale(curves, c);
    largest = std::max(largest, wanted[c]);
  }
  if (largest <= 0.0f) return 0;
  const auto bits_of = [&](std::int64_t attempt) {
    return tried_maximum(largest, static_cast<int>(attempt));
  };
  std::array<double, kMaximaTried> errors;
  threads.parallel(kMaximaTried, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float exact = 256.0f * exl2_group_scale(bits_of(i));
      errors[static_cast<std::size_t>(i)] = exact > 0.0f ? error_of_max(curves, wanted, exact)
                                                         : std::numeric_limits<double>::infinity();
    }
  });
  const auto best = std::min_element(errors.begin(), errors.end());
  return std::isfinite(*best) ? bits_of(best - errors.begin()) : 0;
}

void choose_scale_codes(const GroupPanel& panel, std::int64_t first, const ErrorCurves& curves,
                        std::uint16_t scale_max, std::uint8_t* codes) {
  const std::array<float, 16> scales = column_scales(scale_max);
  std::array<int, kPanelColumns> near{};
  for (std::int64_t c = 0; c < panel.columns; ++c) {
    const float wanted = best_scale(curves, static_cast<std::size_t>(first + c));
    const auto above = std::lower_bound(scales.begin(), scales.end(), wanted);
    near[static_cast<std::size_t>(c)] = static_cast<int>(above - scales.begin());
  }
  ColumnLanes least;
  least.fill(std::numeric_limits<float>::infinity());
  ColumnLanes scale{}, errors;
  for (int step = -2; step <= 1; ++step) {
    const auto code_of = [&](std::size_t c) { return std::clamp(near[c] + step, 0, 15); };
    for (std::size_t c = 0; c < scale.size(); ++c) {
      scale[c] = scales[static_cast<std::size_t>(code_of(c))];
    }
    group_errors(panel, centered_grids(panel, scale), errors);
    for (std::int64_t c = 0; c < panel.columns; ++c) {
      const auto lane = static_cast<std::size_t>(c);
      if (errors[lane] >= least[lane]) continue;
      least[lane] = errors[lane];
      codes[c] = static_cast<std::uint8_t>(code_of(lane));
    }
  }
}

}  // namespace bl
