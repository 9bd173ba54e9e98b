#include "backend/cuda/gemm/pipeline/stage_allocator.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace bl::cuda {
namespace {

struct Live {
  RingSpace::Place place;
  int bytes;
};

// Entries of random lengths that leave in order: none reaches over the end or into another one.
TEST(RingSpace, EntriesLieApart) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int bytes = 1 + static_cast<int>(random() % 40);
    const int most = 1 + static_cast<int>(random() % 8);
    RingSpace ring(bytes, most);
    std::deque<Live> live;
    int placed = 0;
    for (int turn = 0; turn < 500; ++turn) {
      const int length = 1 + static_cast<int>(random() % static_cast<unsigned>(bytes));
      while (!ring.fits(length)) {
        ASSERT_FALSE(live.empty()) << "an empty ring has room for " << length << " of " << bytes;
        ring.release(live.front().place.taken);
        live.pop_front();
      }
      const RingSpace::Place place = ring.place(length);
      ASSERT_GE(place.at, 0);
      ASSERT_LE(place.at + length, bytes);
      for (const Live& other : live) {
        ASSERT_TRUE(place.at + length <= other.place.at ||
                    other.place.at + other.bytes <= place.at);
      }
      live.push_back({place, length});
      ASSERT_LE(static_cast<int>(live.size()), most);
      placed += static_cast<int>(live.size() > 1);
    }
    if (bytes > 20 && most > 4) {
      EXPECT_GT(placed, 50);  // entries do lie beside each other
    }
  }
}

TEST(RingSpace, AFullRingBeginsAnew) {
  RingSpace ring(12, 8);
  EXPECT_EQ(ring.place(4).at, 0);
  EXPECT_EQ(ring.place(8).at, 4);  // up to the very end
  EXPECT_FALSE(ring.fits(1));
  ring.release(4);
  ASSERT_TRUE(ring.fits(4));
  EXPECT_EQ(ring.place(4).at, 0);
}

}  // namespace
}  // namespace bl::cuda
