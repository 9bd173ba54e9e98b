// How groups of slots are cut into launches, and how much memory rounding takes.

#include "backend/cuda/fitting/slot_runs.h"

#include <gtest/gtest.h>

#include "backend/cuda/fitting/factor_size.h"

namespace bl::cuda {
namespace {

TEST(SlotRuns, CoverEverySlotOnce) {
  const GroupList groups{{8, 32}, {5, 128}, {4, 320}, {2, 64}};
  const std::vector<GroupRuns> runs = runs_of(groups);
  ASSERT_EQ(runs.size(), groups.size());
  std::int64_t slot = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    EXPECT_EQ(runs[g].first, slot);
    EXPECT_EQ(runs[g].bits, groups[g].bits);
    EXPECT_EQ(runs[g].slots, groups[g].slots);
    for (const SlotRun& run : runs[g].runs) {
      EXPECT_EQ(run.first, slot);
      EXPECT_GT(run.slots, 0);
      EXPECT_LE(run.slots, kRunSlots);
      slot += run.slots;
    }
    EXPECT_EQ(runs[g].first + runs[g].slots, slot);
  }
  EXPECT_EQ(slot, 544);
  EXPECT_EQ(runs[2].runs.size(), 3u);
  EXPECT_EQ(most_slots(groups), 320);
}

// The largest linears of a block of 70 billion weights, beside what they share.
TEST(FittingMemory, OfALargeBlockFitsACardOf24GiB) {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  const std::int64_t hidden = 8192, intermediate = 28672;
  EXPECT_LT(factor_bytes(intermediate), 10 * kGiB);
  EXPECT_GE(factor_bytes(intermediate), std::size_t{12} * 28672 * 28672);
  EXPECT_LT(rounding_bytes(intermediate, hidden, 128, true), 4 * kGiB);
  EXPECT_GE(rounding_bytes(intermediate, hidden, 128, true), std::size_t{9} * 28672 * 8192);
  // A group of all slots takes three more matrices.
  EXPECT_GT(rounding_bytes(intermediate, hidden, intermediate, true),
            rounding_bytes(intermediate, hidden, 128, true) + std::size_t{7} * 28672 * 8192);
}

}  // namespace
}  // namespace bl::cuda
