#pragma once
// What rounding asks of a format: which weights a group can hold, and how its scales are chosen.

#include <algorithm>
#include <cstdint>
#include <span>

#include "convert/group_errors.h"
#include "convert/host_threads.h"
#include "ops/grid_math.h"

namespace bl {

// A stripe of up to kPanelColumns columns, worked on by one thread.
struct ColumnPanel {
  std::int64_t first = 0;
  std::int64_t columns = 0;
};

// Calls body(panel) for all columns of a matrix, on the backend's threads.
template <class F>
void for_panels(const HostThreads& threads, std::int64_t out, const F& body) {
  threads.parallel(out, kPanelColumns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; c += kPanelColumns) {
      body(ColumnPanel{c, std::min(kPanelColumns, end - c)});
    }
  });
}

// The weights of a group as GPTQ reaches it, F32 [slots, out] in rows that are `stride` apart, and
// what an error of each slot costs.
struct GroupWeights {
  const float* weights = nullptr;
  std::int64_t stride = 0;
  std::span<const float> importance;  // [slots]
  // The part of one panel.
  GroupPanel of(const ColumnPanel& panel, int bits) const {
    return {weights + panel.first, stride, panel.columns, importance, bits};
  }
};

// By how much the loss of each column of a panel changes if a group's codes stay, but its scale or
// its zero point changes. With d, the change of each weight, written as α · (q − zero) + β, the
// change is 2 (α · by_scale + β · by_shift) + α² · scale_scale + 2 α β · scale_shift +
// β² · shift_shift.
struct RefitTerms {
  ColumnLanes by_scale{};
  ColumnLanes by_shift{};
  ColumnLanes scale_scale{};
  ColumnLanes scale_shift{};
  float shift_shift = 0.0f;  // of every column
  RefitSums of(std::size_t column) const {
    return {by_scale[column], by_shift[column], scale_scale[column], scale_shift[column],
            shift_shift};
  }
};

// The scales of all groups of one linear, in a format's own terms. Calls for different panels may
// come from different threads.
class GroupGrids {
 public:
  virtual ~GroupGrids() = default;
  // Chooses the scales of a group for these weights.
  virtual void search(const HostThreads& threads, std::size_t group,
                      const GroupWeights& weights) = 0;
  virtual ColumnGrids grids(std::size_t group, const ColumnPanel& panel) const = 0;
  // Takes other scales where that lowers the loss. Returns whether any changed.
  virtual bool refit(std::size_t group, const ColumnPanel& panel, const RefitTerms& terms) = 0;
};

}  // namespace bl
