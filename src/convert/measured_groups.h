#pragma once
// The groups that allocation chooses from: each linear is measured with them.

#include <algorithm>
#include <cstdint>

namespace bl {

// Each linear is measured at these widths with groups of kMeasuredGroup slots, and at one width
// with the other sizes, too.
inline constexpr int kMeasuredWidths[] = {8, 6, 5, 4, 3, 2};
inline constexpr std::int32_t kMeasuredGroup = 64;
inline constexpr std::int32_t kOtherGroupSizes[] = {32, 128};

inline constexpr std::int32_t kSmallestGroup =
    std::min(kMeasuredGroup, std::ranges::min(kOtherGroupSizes));
inline constexpr std::int32_t kLargestGroup =
    std::max(kMeasuredGroup, std::ranges::max(kOtherGroupSizes));

}  // namespace bl
