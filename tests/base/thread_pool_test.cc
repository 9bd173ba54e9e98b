#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>

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
