#include "backend/cuda/gemm/pipeline/stage_allocator.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace bl::cuda {
namespace {

struct Live {
  StageAllocator::Allocation allocation;
  int bytes;
};

// Stages of random lengths, released in order: none wraps around the end or overlaps another.
TEST(StageAllocator, StagesLieApart) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int bytes = 1 + static_cast<int>(random() % 40);
    const int most = 1 + static_cast<int>(random() % 8);
    StageAllocator pipeline(bytes, most);
    std::deque<Live> live;
    int placed = 0;
    for (int turn = 0; turn < 500; ++turn) {
      const int length = 1 + static_cast<int>(random() % static_cast<unsigned>(bytes));
      while (!pipeline.fits(length)) {
        ASSERT_FALSE(live.empty()) << "an empty ring has room for " << length << " of " << bytes;
        pipeline.release(live.front().allocation.taken);
        live.pop_front();
      }
      const StageAllocator::Allocation allocation = pipeline.allocate(length);
      ASSERT_GE(allocation.at, 0);
      ASSERT_LE(allocation.at + length, bytes);
      for (const Live& other : live) {
        ASSERT_TRUE(allocation.at + length <= other.allocation.at ||
                    other.allocation.at + other.bytes <= allocation.at);
      }
      live.push_back({allocation, length});
      ASSERT_LE(static_cast<int>(live.size()), most);
      placed += static_cast<int>(live.size() > 1);
    }
    if (bytes > 20 && most > 4) {
      EXPECT_GT(placed, 50);  // stages do lie beside one another
    }
  }
}

TEST(StageAllocator, AFullRingStartsOver) {
  StageAllocator pipeline(12, 8);
  EXPECT_EQ(pipeline.allocate(4).at, 0);
  EXPECT_EQ(pipeline.allocate(8).at, 4);  // up to the very end
  EXPECT_FALSE(pipeline.fits(1));
  pipeline.release(4);
  ASSERT_TRUE(pipeline.fits(4));
  EXPECT_EQ(pipeline.allocate(4).at, 0);
}

}  // namespace
}  // namespace bl::cuda
