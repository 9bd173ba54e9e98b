#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace bl {
namespace {

TEST(ThreadPool, RunsEveryThreadOnceEachTime) {
  ThreadPool pool(3);
  ASSERT_EQ(pool.threads(), 3);
  for (int round = 0; round < 2000; ++round) {
    std::atomic<int> sum{0};
    pool.run([&](int thread) { sum += 1 << (4 * thread); });
    ASSERT_EQ(sum, 0x111);
  }
}

// BL_POOL_ROUNDS: thousands, to meet rare interleavings; fewer with the thread sanitizer, which
// needs no luck to see a race and makes every round take milliseconds.
TEST(ThreadPool, AnyThreadsShareTheWorkAndNoneComesTwiceOrLate) {
  ThreadPool pool(5);
  for (int round = 0; round < BL_POOL_ROUNDS; ++round) {
    const int pieces = 1 + round % 40;
    std::atomic<int> next{0};
    std::atomic<int> done{0};
    std::atomic<int> here{0};
    std::vector<std::atomic<int>> visits(5);
    pool.run_any([&](int thread) {
      ++here;
      ++visits[static_cast<std::size_t>(thread)];
      while (next.fetch_add(1) < pieces) ++done;
      --here;
    });
    ASSERT_EQ(done, pieces);  // the stack variables die next: nobody may still be inside
    ASSERT_EQ(here, 0);
    ASSERT_EQ(visits[0], 1);
    for (const auto& count : visits) ASSERT_LE(count, 1);
    // A strict region right after it has everybody, once.
    std::atomic<int> sum{0};
    pool.run([&](int thread) { sum += 1 << (4 * thread); });
    ASSERT_EQ(sum, 0x11111);
  }
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(3);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than they spin
    std::atomic<int> sum{0};
    pool.run([&](int thread) { sum += 1 << (4 * thread); });
    ASSERT_EQ(sum, 0x111);
  }
}

TEST(ThreadPool, ParallelForCoversTheRangeOnce) {
  ThreadPool pool(2);
  for (long count : {0L, 1L, 7L, 64L, 1000L}) {
    std::vector<std::atomic<int>> hits(static_cast<std::size_t>(count));
    pool.parallel_for(count, 7, [&](long begin, long end) {
      for (long i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
    });
    for (const auto& hit : hits) ASSERT_EQ(hit, 1);
  }
}

TEST(ThreadPool, CountsAtLeastOneCore) { EXPECT_GE(physical_cores(), 1); }

}  // namespace
}  // namespace bl
