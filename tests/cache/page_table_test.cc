#include "cache/page_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "ops/kv_layout.h"

namespace bl {
namespace {

TEST(PagePool, HandsOutEachPageOnce) {
  PagePool pool(3);
  std::set<std::int32_t> seen;
  for (int i = 0; i < 3; ++i) seen.insert(pool.take().value());
  EXPECT_EQ(seen, (std::set<std::int32_t>{0, 1, 2}));
  EXPECT_FALSE(pool.take().has_value());
  pool.retain(1);
  pool.release(1);
  EXPECT_FALSE(pool.take().has_value());
  pool.release(1);
  EXPECT_EQ(pool.take(), 1);
}

TEST(PageTable, SlotsFollowPages) {
  PagePool pool(4);
  PageTable other(pool);
  ASSERT_TRUE(other.reserve(1));
  PageTable table(pool);
  ASSERT_TRUE(table.reserve(kPageSlots + 1));
  EXPECT_EQ(table.capacity(), 2 * kPageSlots);
  for (const std::int64_t p : {0, 1, 255, 256, 257, 511}) {
    const std::int32_t page = table.pages()[static_cast<std::size_t>(p / kPageSlots)];
    EXPECT_EQ(table.slot(p), page * kPageSlots + p % kPageSlots);
  }
}

TEST(PageTable, ReserveThatFailsChangesNothing) {
  PagePool pool(3);
  PageTable table(pool);
  ASSERT_TRUE(table.reserve(10));
  EXPECT_FALSE(table.reserve(3 * kPageSlots + 1));
  EXPECT_EQ(table.pages().size(), 1u);
  EXPECT_EQ(pool.free_pages(), 2);
  EXPECT_TRUE(table.reserve(3 * kPageSlots));
}

TEST(PageTable, GivesBackOnTruncateMoveAndDestruction) {
  PagePool pool(8);
  {
    PageTable a(pool);
    ASSERT_TRUE(a.reserve(4 * kPageSlots));
    a.truncate(kPageSlots + 1);
    EXPECT_EQ(pool.free_pages(), 6);
    a.truncate(kPageSlots);
    EXPECT_EQ(pool.free_pages(), 7);
    PageTable b(std::move(a));
    PageTable c(pool);
    ASSERT_TRUE(c.reserve(1));
    c = std::move(b);
    EXPECT_EQ(pool.free_pages(), 6);
  }
  EXPECT_EQ(pool.free_pages(), 8);
}

// A step of the random walk: tables grow, shrink, share their full pages and vanish.
TEST(PageTable, RandomOperationsLeakNoPage) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  PagePool pool(64);
  std::vector<PageTable> tables;
  for (int step = 0; step < 20000; ++step) {
    const int action = below(5);
    if (tables.empty() || (action == 0 && tables.size() < 12)) {
      tables.emplace_back(pool);
      continue;
    }
    const auto pick = static_cast<std::size_t>(below(static_cast<int>(tables.size())));
    if (action == 1) {
      std::swap(tables[pick], tables.back());
      tables.pop_back();
    } else if (action == 2) {
      tables[pick].truncate(below(static_cast<int>(tables[pick].capacity()) + 1));
    } else if (action == 3 && !tables[pick].pages().empty()) {
      PageTable fork(pool);
      const auto pages = tables[pick].pages();
      fork.share(pages.first(1 + static_cast<std::size_t>(below(static_cast<int>(pages.size())))));
      if (tables.size() < 12) tables.push_back(std::move(fork));
    } else {
      const std::int64_t wanted = tables[pick].capacity() + below(1500);
      const std::int32_t free = pool.free_pages();
      const std::size_t before = tables[pick].pages().size();
      if (!tables[pick].reserve(wanted)) {
        EXPECT_EQ(tables[pick].pages().size(), before);
        EXPECT_LT(free, (wanted + kPageSlots - 1) / kPageSlots);
      }
    }
    std::map<std::int32_t, int> references;
    for (const PageTable& table : tables) {
      for (const std::int32_t page : table.pages()) ++references[page];
    }
    ASSERT_EQ(pool.free_pages() + static_cast<int>(references.size()), pool.pages());
    for (const auto& [page, count] : references) ASSERT_EQ(pool.references(page), count);
  }
  tables.clear();
  EXPECT_EQ(pool.free_pages(), pool.pages());
}

}  // namespace
}  // namespace bl
