#include "backend/cpu/piece_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace bl::cpu {
namespace {

TEST(PieceQueue, GivesEveryPieceOnce) {
  for (const int threads : {1, 2, 3, 7, 64, 200}) {
    for (const std::int64_t count : {0, 1, 2, 63, 64, 65, 1000}) {
      PieceQueue queue(count, threads);
      std::vector<int> taken(static_cast<std::size_t>(count));
      // Threads take turns, the last one alone at the end.
      for (int turn = 0; turn < 3 * threads; ++turn) {
        const std::int64_t piece = queue.take(turn % threads);
        if (piece >= 0) ++taken.at(static_cast<std::size_t>(piece));
      }
      for (std::int64_t piece = 0; (piece = queue.take(threads - 1)) >= 0;) {
        ++taken.at(static_cast<std::size_t>(piece));
      }
      EXPECT_EQ(taken, std::vector<int>(static_cast<std::size_t>(count), 1))
          << count << " pieces, " << threads << " threads";
    }
  }
}

TEST(PieceQueue, ReadsItsOwnRunFrontToBackThenHelps) {
  PieceQueue queue(10, 2);
  const std::vector<std::int64_t> expected{5, 6, 7, 8, 9, 0, 1, 2, 3, 4, -1};
  for (const std::int64_t piece : expected) EXPECT_EQ(queue.take(1), piece);
}

TEST(PieceQueue, ThreadsAtOnce) {
  constexpr std::int64_t kCount = 20000;
  PieceQueue queue(kCount, 4);
  std::vector<std::atomic<int>> taken(kCount);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t piece = 0; (piece = queue.take(t)) >= 0;) {
        ++taken[static_cast<std::size_t>(piece)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::atomic<int>& count : taken) ASSERT_EQ(count.load(), 1);
}

}  // namespace
}  // namespace bl::cpu
