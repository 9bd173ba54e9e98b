#include "engine/loop_detector.h"

#include <gtest/gtest.h>

#include <vector>

namespace bl {
namespace {

TEST(LoopDetector, UnitsAndTheirRepeats) {
  using Ids = std::vector<std::int32_t>;
  EXPECT_TRUE(is_loop(Ids{7, 7, 7, 7}, 4));
  EXPECT_FALSE(is_loop(Ids{7, 7, 7, 7}, 5));
  EXPECT_TRUE(is_loop(Ids{1, 2, 3, 1, 2, 3}, 2));
  EXPECT_FALSE(is_loop(Ids{1, 2, 3, 1, 2, 3}, 3));
  EXPECT_TRUE(is_loop(Ids{2, 3, 1, 2, 3, 1, 2}, 2));  // cut anywhere
  EXPECT_FALSE(is_loop(Ids{1, 2, 3, 1, 2, 4}, 2));
  EXPECT_FALSE(is_loop(Ids{1, 2, 1, 3, 1, 2, 1}, 2));
  EXPECT_FALSE(is_loop(Ids{}, 2));
}

// Against trying every period.
TEST(LoopDetector, AgreesWithTryingEveryUnit) {
  for (std::uint32_t bits = 0; bits < 4096; ++bits) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 12; ++i) ids.push_back(static_cast<std::int32_t>(bits >> i & 1u));
    for (std::int64_t repeats = 1; repeats <= 5; ++repeats) {
      bool expected = false;
      for (std::size_t unit = 1; unit <= ids.size(); ++unit) {
        bool same = true;
        for (std::size_t i = unit; i < ids.size(); ++i) same = same && ids[i] == ids[i - unit];
        expected = expected || (same && static_cast<std::int64_t>(unit) * repeats <= 12);
      }
      ASSERT_EQ(is_loop(ids, repeats), expected) << bits;
    }
  }
}

}  // namespace
}  // namespace bl
