#pragma once
// What rounding the weights of one group to given scales costs.

#include <array>
#include <cstdint>
#include <span>

namespace bl {

// Columns are searched and rounded in panels of this many, each by one thread.
inline constexpr std::int64_t kPanelColumns = 64;

// A number for each column of a panel.
using ColumnLanes = std::array<float, kPanelColumns>;

// Weights of one group and panel, [slots, stride], and what an error of each slot costs.
struct GroupPanel {
  const float* weights = nullptr;
  std::int64_t stride = 0;
  std::int64_t columns = 0;           // a multiple of 16, up to kPanelColumns
  std::span<const float> importance;  // [slots]
  int bits = 0;
};

// The grid of each column of a panel in one group: code q stands for RN16((q − zero) · scale).
struct ColumnGrids {
  ColumnLanes scale{};  // 0: the column holds nothing but zeros
  ColumnLanes zero{};   // whole numbers
};

// The weighted squared error of each column of the panel when its weights take the nearest values
// of its grid, added up over the slots. Values are not rounded to binary16 here.
void group_errors(const GroupPanel& panel, const ColumnGrids& grids, ColumnLanes& errors);

}  // namespace bl
