#include "base/progress.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace bl {
namespace {

TEST(Progress, WhatThreadsAddIsNeverLost) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20000;
  Progress progress("test", std::int64_t{kThreads} * kRounds, Progress::Unit::kItems);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) progress.advance(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(progress.done(), std::int64_t{kThreads} * kRounds);
}

}  // namespace
}  // namespace bl
