// Copies between pages and host memory are joined into few calls.

#include "backend/cuda/device/piece_runs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace bl::cuda {
namespace {

constexpr std::size_t kMost = 1 << 20;

class PieceRuns : public testing::Test {
 protected:
  void add(std::size_t to, std::size_t from, std::size_t bytes) {
    pieces_.push_back({to_.data() + to, from_.data() + from, bytes});
  }
  std::vector<PieceRun> runs(std::size_t most = kMost) const { return runs_of(pieces_, most); }

  std::vector<std::byte> to_ = std::vector<std::byte>(1 << 16);
  std::vector<std::byte> from_ = std::vector<std::byte>(1 << 16);
  std::vector<CopyPiece> pieces_;
};

// Keys and values of all layers of a page: pools of one size, one behind the other.
TEST_F(PieceRuns, PoolsAreOneRun) {
  for (std::size_t i = 0; i < 64; ++i) add(256 * i, 640 * i + 64, 64);
  const std::vector<PieceRun> found = runs();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rows, 64u);
  EXPECT_EQ(found[0].to_pitch, 256u);
  EXPECT_EQ(found[0].from_pitch, 640u);
  EXPECT_EQ(found[0].first.bytes, 64u);
  EXPECT_EQ(found[0].first.to, to_.data());
  EXPECT_EQ(found[0].first.from, from_.data() + 64);
}

// A page on the host is contiguous: its pitch is the row itself.
TEST_F(PieceRuns, OneSideMayBeWhole) {
  for (std::size_t i = 0; i < 8; ++i) add(64 * i, 512 * i, 64);
  const std::vector<PieceRun> found = runs();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].to_pitch, 64u);
}

TEST_F(PieceRuns, WhatChangesEndsARun) {
  add(0, 0, 64);
  add(128, 128, 64);
  add(256, 300, 64);  // the source's distance differs
  add(384, 472, 64);
  add(500, 644, 64);   // the destination's
  add(628, 772, 32);   // the size
  add(600, 900, 32);   // backwards
  add(610, 1000, 32);  // overlaps the copy before
  const std::vector<PieceRun> found = runs();
  ASSERT_EQ(found.size(), 6u);
  EXPECT_EQ(found[0].rows, 2u);
  EXPECT_EQ(found[1].rows, 2u);
  EXPECT_EQ(found[1].from_pitch, 172u);
  for (std::size_t i = 2; i < 6; ++i) EXPECT_EQ(found[i].rows, 1u) << i;
}

TEST_F(PieceRuns, PitchesHaveALimit) {
  for (std::size_t i = 0; i < 4; ++i) add(128 * i, 64 * i, 64);
  EXPECT_EQ(runs(128).size(), 1u);
  EXPECT_EQ(runs(127).size(), 4u);
}

TEST_F(PieceRuns, NothingIsNoRun) {
  EXPECT_TRUE(runs().empty());
  add(0, 0, 0);
  EXPECT_TRUE(runs().empty());
}

// Runs copy exactly what the single copies would.
TEST_F(PieceRuns, RunsCopyEveryPiece) {
  std::mt19937 random(3);
  for (std::byte& b : from_) b = static_cast<std::byte>(random());
  for (int round = 0; round < 200; ++round) {
    pieces_.clear();
    std::size_t to = 0;
    std::size_t from = 0;
    while (true) {
      const std::size_t bytes = 16 << random() % 2;
      const std::size_t to_step = bytes + 16 * (random() % 2);
      const std::size_t from_step = bytes + 16 * (random() % 2);
      const std::size_t count = 1 + random() % 5;
      if (to + count * to_step > 4096) break;
      for (std::size_t i = 0; i < count; ++i, to += to_step, from += from_step) {
        add(to, from, bytes);
      }
    }
    std::vector<std::byte> expected(to_.size());
    for (const CopyPiece& p : pieces_) {
      std::memcpy(expected.data() + (static_cast<std::byte*>(p.to) - to_.data()), p.from, p.bytes);
    }
    std::fill(to_.begin(), to_.end(), std::byte{});
    for (const PieceRun& run : runs()) {
      for (std::size_t row = 0; row < run.rows; ++row) {
        std::memcpy(static_cast<std::byte*>(run.first.to) + row * run.to_pitch,
                    static_cast<const std::byte*>(run.first.from) + row * run.from_pitch,
                    run.first.bytes);
      }
    }
    ASSERT_EQ(to_, expected) << round;
  }
}

}  // namespace
}  // namespace bl::cuda
