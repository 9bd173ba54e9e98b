#include "backend/cuda/device/step_keys.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace bl::cuda {
namespace {

using Way = StepKeys::Way;

class StepKeysTest : public testing::Test {
 protected:
  // As the recorder does.
  Way run(std::uint64_t key) {
    const StepKeys::Turn turn = keys_.next(key);
    if (turn.displaced) {
      EXPECT_EQ(turn.way, Way::kRecord);
      EXPECT_EQ(graphs_.erase(*turn.displaced), 1u);
    }
    if (turn.way == Way::kRecord) {
      EXPECT_TRUE(graphs_.insert(key).second);
      keys_.recorded(key);
      ++recorded_;
    }
    EXPECT_EQ(turn.way != Way::kPlain, graphs_.count(key) == 1);
    EXPECT_LE(graphs_.size(), 4u);
    EXPECT_EQ(keys_.graphs(), graphs_.size());
    EXPECT_LE(keys_.remembered(), 16u);
    return turn.way;
  }

  StepKeys keys_{4, 16};
  std::set<std::uint64_t> graphs_;
  int recorded_ = 0;
};

TEST_F(StepKeysTest, TheSecondTimeIsRecordedAndTheThirdRepeated) {
  EXPECT_EQ(run(7), Way::kPlain);
  EXPECT_EQ(run(8), Way::kPlain);
  EXPECT_EQ(run(7), Way::kRecord);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(run(7), Way::kRepeat);
  EXPECT_EQ(run(8), Way::kRecord);  // still recorded after any time, while there is a free place
  keys_.clear();
  graphs_.clear();
  EXPECT_EQ(run(7), Way::kPlain);
}

TEST_F(StepKeysTest, KeysThatCameOnceTakeNoPlace) {
  for (std::uint64_t key = 1000; key < 2000; ++key) EXPECT_EQ(run(key), Way::kPlain);
  EXPECT_EQ(run(1), Way::kPlain);
  EXPECT_EQ(run(1), Way::kRecord);
  EXPECT_EQ(run(1), Way::kRepeat);
}

TEST_F(StepKeysTest, WhatIsLongWithoutUseMakesRoom) {
  for (std::uint64_t key = 0; key < 4; ++key) {
    run(key);
    EXPECT_EQ(run(key), Way::kRecord);
  }
  for (int i = 0; i < 40; ++i) run(i % 2);
  // 2 was unused for longest, then 3; 0 and 1 are in use.
  run(10);
  EXPECT_EQ(run(10), Way::kRecord);
  EXPECT_EQ(graphs_, (std::set<std::uint64_t>{0, 1, 3, 10}));
  run(11);
  EXPECT_EQ(run(11), Way::kRecord);
  EXPECT_EQ(graphs_, (std::set<std::uint64_t>{0, 1, 10, 11}));
  run(12);
  EXPECT_EQ(run(12), Way::kPlain);
}

TEST_F(StepKeysTest, MoreKeysInTurnThanPlacesDoNotPushEachOtherOut) {
  for (const std::uint64_t keys : {5u, 10u, 15u, 30u, 100u}) {
    for (int i = 0; i < 2000; ++i) run(keys * 1000 + static_cast<std::uint64_t>(i) % keys);
  }
  EXPECT_LE(recorded_, 5 * 4);
  EXPECT_GE(recorded_, 3 * 4);
}

TEST_F(StepKeysTest, WhatCouldNotBeRecordedTriesAgain) {
  run(1);
  EXPECT_EQ(keys_.next(1).way, Way::kRecord);
  EXPECT_EQ(keys_.next(1).way, Way::kRecord);
  keys_.recorded(1);
  EXPECT_EQ(keys_.next(1).way, Way::kRepeat);
}

TEST_F(StepKeysTest, AnyTrafficStaysWithinItsBounds) {
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) run(std::geometric_distribution<std::uint64_t>(0.15)(random));
  EXPECT_EQ(graphs_.size(), 4u);
}

}  // namespace
}  // namespace bl::cuda
