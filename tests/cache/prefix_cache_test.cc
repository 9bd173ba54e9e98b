#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "ops/kv_layout.h"

namespace bl {
namespace {

using Ids = std::vector<std::int32_t>;

Ids text(std::size_t tokens, std::int32_t seed = 0) {
  Ids ids;
  for (std::size_t i = 0; i < tokens; ++i) ids.push_back(static_cast<std::int32_t>(i) + seed);
  return ids;
}

// Pages that hold the tokens themselves.
class TokenPages : public PageMemory {
 public:
  explicit TokenPages(std::int32_t pages)
      : slots(static_cast<std::size_t>(pages) * kPageSlots, -1) {}
  std::size_t page_bytes() const override { return kPageSlots * sizeof(std::int32_t); }
  void copy_page(std::int32_t to, std::int32_t from) override {
    std::memcpy(page(to), page(from), page_bytes());
  }
  Buffer allocate_host(std::size_t bytes) override {
    if (--allocations < 0) return {};
    return bl::allocate_host(bytes);
  }
  void write_page(std::byte* host, std::int32_t from) override {
    std::memcpy(host, page(from), page_bytes());
  }
  void read_page(std::int32_t to, const std::byte* host) override {
    std::memcpy(page(to), host, page_bytes());
  }
  void finish_moves() override {}
  std::int32_t* page(std::int32_t p) { return slots.data() + std::ptrdiff_t{p} * kPageSlots; }

  std::vector<std::int32_t> slots;
  int allocations = 1 << 20;  // so many succeed
};

// A cache whose pages hold the tokens themselves; with a host tier where it has pages for one.
class Store {
 public:
  explicit Store(std::int32_t pages, std::size_t host_pages = 0)
      : pool(pages),
        memory(pages),
        tier(host_pages > 0 ? std::make_unique<HostTier>(memory, host_pages * memory.page_bytes())
                            : nullptr),
        cache(
            pool, [this](std::int32_t to, std::int32_t from) { memory.copy_page(to, from); }, 1,
            tier.get()) {}

  struct Text {
    explicit Text(PagePool& pool) : table(pool) {}
    PageTable table;
    PrefixCursor cursor;
    std::int64_t found = 0;
  };
  // A whole text, computed as far as the cache doesn't know it.
  bool compute(const Ids& ids, Text& out, std::string_view salt = "") {
    out.found = cache.adopt(salt, std::span(ids).first(ids.size() - 1), out.table, out.cursor);
    if (!cache.reserve(out.table, static_cast<std::int64_t>(ids.size()))) return false;
    for (std::size_t i = static_cast<std::size_t>(out.found); i < ids.size(); ++i) {
      slot(out, i) = ids[i];
    }
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(slot(out, i), ids[i]);
    return true;
  }
  void end(const Ids& ids, Text& text, std::string_view salt = "") {
    cache.publish_all(salt, ids, text.table, text.cursor);
    cache.release(text.table, text.cursor);
  }
  // What a request for this text would find.
  std::int64_t ask(const Ids& ids, std::string_view salt = "") {
    Text text(pool);
    EXPECT_TRUE(compute(ids, text, salt));
    const std::int64_t found = text.found;
    end(ids, text, salt);
    return found;
  }
  std::int32_t& slot(const Text& text, std::size_t i) {
    return memory.slots[static_cast<std::size_t>(text.table.slot(static_cast<std::int64_t>(i)))];
  }

  void expect_whole() {
    EXPECT_EQ(pool.free_pages() + pool.idle_pages(), pool.pages());
    EXPECT_EQ(cache.index().size(), pool.idle_pages());
    EXPECT_EQ(cache.index().host_size(), tier ? tier->slots() - tier->free_slots() : 0);
  }

  PagePool pool;
  TokenPages memory;
  std::unique_ptr<HostTier> tier;
  PrefixCache cache;
};

TEST(PrefixCache, FindsWhatWasComputed) {
  Store store(16);
  EXPECT_EQ(store.ask(text(600)), 0);
  EXPECT_EQ(store.pool.idle_pages(), 3);
  EXPECT_EQ(store.ask(text(600)), 599);  // the last token is always computed
  EXPECT_EQ(store.ask(text(700)), 600);
  EXPECT_EQ(store.ask(text(300)), 299);
  Ids other = text(520);
  other[400] = -5;
  EXPECT_EQ(store.ask(other), 400);
  other = text(520);
  other[0] = -5;
  EXPECT_EQ(store.ask(other), 0);
}

// What was found once is not looked for again; that it holds no more is noticed.
TEST(PrefixCache, WhatIsSharedIsRemembered) {
  Store store(16);
  const Ids prompt = text(1200);
  SharedBeginning known;
  const auto expect_shared = [&](std::int32_t pages) {
    EXPECT_EQ(store.cache.shared_pages("", prompt, known), pages);
    EXPECT_EQ(store.cache.shared_pages("", prompt), pages);
  };
  expect_shared(0);
  Store::Text own(store.pool);
  ASSERT_TRUE(store.compute(prompt, own));
  store.cache.publish("", std::span(prompt).first(600), own.table, own.cursor);
  expect_shared(2);
  // Nothing has changed, and nothing is asked for: not even whether it is the same text.
  EXPECT_EQ(store.cache.shared_pages("", text(1200, 5), known), 2);
  store.cache.publish("", prompt, own.table, own.cursor);
  expect_shared(4);
  // The last two are nobody's now; then they are gone, and the place of their nodes taken.
  Store::Text other(store.pool);
  ASSERT_TRUE(store.compute(text(600), other));
  store.cache.release(own.table, own.cursor);
  expect_shared(2);
  store.cache.evict_all();
  expect_shared(2);
  store.cache.release(other.table, other.cursor);
  store.cache.evict_all();
  Ids foreign = text(1200, 7);
  ASSERT_TRUE(store.compute(foreign, other));
  store.cache.publish("", foreign, other.table, other.cursor);
  expect_shared(0);
  store.cache.release(other.table, other.cursor);
  store.cache.evict_all();
  ASSERT_TRUE(store.compute(prompt, own));
  store.cache.publish("", prompt, own.table, own.cursor);
  expect_shared(4);
  store.cache.release(own.table, own.cursor);
  expect_shared(0);
  // Taken by another again.
  ASSERT_TRUE(store.compute(text(900), other));
  expect_shared(3);
  store.cache.release(other.table, other.cursor);
}

// Beside a memory that is asked at every turn, pages come and go by chance.
TEST(PrefixCache, WhatIsRememberedIsWhatIsFound) {
  Store store(24, 8);
  std::mt19937 random(3);
  std::vector<Ids> texts;
  for (std::int32_t i = 0; i < 4; ++i) {
    texts.push_back(text(1100));
    for (std::size_t at = static_cast<std::size_t>(i) * 256; i > 0 && at < 1100; ++at) {
      texts.back()[at] += 2000 * i;
    }
  }
  std::vector<SharedBeginning> known(texts.size());
  std::vector<std::unique_ptr<Store::Text>> running(texts.size());
  for (int turn = 0; turn < 4000; ++turn) {
    const std::size_t i = random() % texts.size();
    store.cache.begin_step({}, 100);
    if (random() % 50 == 0) {
      store.cache.evict_all();
    } else if (running[i]) {
      store.end(texts[i], *running[i]);
      running[i] = nullptr;
    } else {
      running[i] = std::make_unique<Store::Text>(store.pool);
      ASSERT_TRUE(store.compute(texts[i], *running[i]));
      const std::size_t part = random() % texts[i].size();
      store.cache.publish("", std::span(texts[i]).first(part), running[i]->table,
                          running[i]->cursor);
    }
    const std::size_t asked = random() % texts.size();
    ASSERT_EQ(store.cache.shared_pages("", texts[asked], known[asked]),
              store.cache.shared_pages("", texts[asked]));
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (running[i]) store.end(texts[i], *running[i]);
  }
}

TEST(PrefixCache, TextsAreCut) {
  Store store(16);
  const Ids prompt = text(700);
  Store::Text own(store.pool);
  ASSERT_TRUE(store.compute(prompt, own));
  store.cache.publish_all("", prompt, own.table, own.cursor);
  EXPECT_EQ(own.cursor.tokens, 512);
  // In the last page, which is nobody else's: what was published of it is not true any more.
  EXPECT_EQ(store.cache.truncate(own.table, own.cursor, 690), 690);
  EXPECT_EQ(own.table.capacity(), 768);
  EXPECT_EQ(store.cache.index().size(), 2);
  // A longer text still finds what is before it.
  store.slot(own, 690) = -1;
  EXPECT_EQ(store.ask(prompt), 512);
  // At the border of a page, and in a page that is published: that one is not written into.
  EXPECT_EQ(store.cache.truncate(own.table, own.cursor, 512), 512);
  EXPECT_EQ(own.table.capacity(), 512);
  EXPECT_EQ(store.cache.truncate(own.table, own.cursor, 400), 256);
  EXPECT_EQ(own.table.capacity(), 256);
  EXPECT_EQ(own.cursor.tokens, 256);
  Ids other = text(500);
  other[400] = -7;
  EXPECT_EQ(store.cache.adopt("", std::span(other).first(499), own.table, own.cursor), 400);
  EXPECT_EQ(store.slot(own, 399), 399);
  store.cache.release(own.table, own.cursor);
  ASSERT_TRUE(store.compute(prompt, own));
  EXPECT_EQ(store.cache.truncate(own.table, own.cursor, 3), 0);
  EXPECT_EQ(own.cursor.node, PrefixIndex::kNone);
  EXPECT_EQ(store.ask(prompt), 699);
  EXPECT_EQ(store.pool.free_pages() + store.pool.idle_pages(), 16);
}

TEST(PrefixCache, SaltsShareNothing) {
  Store store(16);
  EXPECT_EQ(store.ask(text(600), "a"), 0);
  EXPECT_EQ(store.ask(text(600), "b"), 0);
  EXPECT_EQ(store.ask(text(600), "a"), 599);
  EXPECT_EQ(store.ask(text(600), ""), 0);
}

TEST(PrefixCache, LivePagesAreSharedAndNeverWritten) {
  Store store(8);
  const Ids prompt = text(600);
  Store::Text first(store.pool);
  ASSERT_TRUE(store.compute(prompt, first));
  store.cache.publish(std::string_view(), prompt, first.table, first.cursor);
  EXPECT_EQ(store.cache.shared_pages("", prompt), 2);
  Ids other = prompt;
  other.back() = -1;
  Store::Text second(store.pool);
  ASSERT_TRUE(store.compute(other, second));
  EXPECT_EQ(second.found, 512);
  EXPECT_EQ(store.pool.free_pages(), 8 - 4);
  EXPECT_EQ(store.slot(first, 599), 599);
  // Two that compute the same page keep one of them.
  Ids same = text(256, 1000);
  same.push_back(7);
  Store::Text third(store.pool);
  Store::Text fourth(store.pool);
  ASSERT_TRUE(store.compute(same, third));
  ASSERT_TRUE(store.compute(same, fourth));
  EXPECT_EQ(store.pool.free_pages(), 0);
  store.cache.publish("", same, third.table, third.cursor);
  store.cache.publish("", same, fourth.table, fourth.cursor);
  EXPECT_EQ(store.pool.free_pages(), 1);
  EXPECT_EQ(third.table.pages()[0], fourth.table.pages()[0]);
}

TEST(PrefixCache, TheLeastRecentlyUsedGoesFromItsEnd) {
  Store store(5);
  store.ask(text(512));
  store.ask(text(512, 5000));
  store.ask(text(512, 0));  // used again; its copy of the last page goes with it
  EXPECT_EQ(store.pool.free_pages(), 1);
  store.ask(text(512, 9000));
  EXPECT_EQ(store.cache.stats().pages_evicted, 1);
  EXPECT_EQ(store.ask(text(512, 5000)), 256);  // its end is gone, its first page is not
}

TEST(PrefixCache, NoPageLeftChangesNothing) {
  Store store(2);
  Store::Text all(store.pool);
  ASSERT_TRUE(store.compute(text(512), all));
  Store::Text more(store.pool);
  EXPECT_FALSE(store.compute(text(10, 77), more));
  EXPECT_TRUE(more.table.pages().empty());
  store.end(text(512), all);
  EXPECT_TRUE(store.compute(text(10, 77), more));
  store.end(text(10, 77), more);
  EXPECT_EQ(store.pool.free_pages() + store.pool.idle_pages(), 2);
}

TEST(PrefixCache, TheOnlyPageIsHandedOver) {
  Store store(1);
  store.ask(text(100));
  EXPECT_EQ(store.ask(text(120)), 100);
  EXPECT_EQ(store.ask(text(90)), 89);
}

TEST(PrefixCache, GoesWithoutATrace) {
  PagePool pool(4);
  {
    PrefixCache cache(
        pool, [](std::int32_t, std::int32_t) {}, 1);
    PageTable table(pool);
    PrefixCursor cursor;
    ASSERT_TRUE(cache.reserve(table, 300));
    cache.publish_all("", text(300), table, cursor);
    cache.release(table, cursor);
    EXPECT_EQ(pool.free_pages(), 2);
  }
  EXPECT_EQ(pool.free_pages(), 4);
}

TEST(PrefixCache, WhatIsEvictedComesBackFromTheHost) {
  Store store(4, 8);
  EXPECT_EQ(store.ask(text(1000)), 0);
  EXPECT_EQ(store.ask(text(1000, 5000)), 0);
  EXPECT_EQ(store.cache.stats().pages_stored, 4);
  EXPECT_EQ(store.cache.index().host_size(), 4);
  EXPECT_EQ(store.cache.shared_pages("", text(1000)), 0);
  EXPECT_EQ(store.ask(text(1000)), 999);  // all of it, and the rest of the last page
  EXPECT_EQ(store.cache.stats().pages_restored, 4);
  EXPECT_EQ(store.cache.stats().tokens_restored, 999);
  EXPECT_EQ(store.ask(text(1000, 5000)), 999);
  EXPECT_EQ(store.ask(text(300, 5000)), 299);
  EXPECT_EQ(store.ask(text(1000), "salt"), 0);
  store.expect_whole();
}

TEST(PrefixCache, TheHostGivesUpTheLeastRecentlyUsedFromItsEnd) {
  Store store(2, 5);
  for (std::int32_t i = 0; i < 4; ++i) EXPECT_EQ(store.ask(text(512, 10000 * i)), 0);
  // Six pages were evicted, and four slots may be filled: the end of the first text has gone, then
  // its beginning.
  EXPECT_EQ(store.cache.stats().pages_dropped, 2);
  EXPECT_EQ(store.ask(text(512, 10000)), 511);
  EXPECT_EQ(store.ask(text(512, 0)), 0);
  store.expect_whole();
}

TEST(PrefixCache, ATextIsNotPushedOutWhileItComesBack) {
  Store store(3, 4);  // three slots and the one for exchange: all that the text has
  ASSERT_EQ(store.ask(text(768)), 0);
  ASSERT_EQ(store.ask(text(768, 5000)), 0);
  EXPECT_EQ(store.ask(text(768)), 767);
  EXPECT_EQ(store.ask(text(768, 5000)), 767);
  EXPECT_EQ(store.cache.stats().pages_dropped, 0);
  store.expect_whole();
}

TEST(PrefixCache, WhatAnotherHasComputedMeanwhileTakesThePlaceOfTheHosts) {
  Store store(6, 4);
  store.ask(text(512));
  Store::Text all(store.pool);
  ASSERT_TRUE(store.compute(text(1536, 7000), all));  // pushes it out
  EXPECT_EQ(store.cache.index().host_size(), 2);
  store.end(text(1536, 7000), all);
  // Somebody who may not adopt computes the text himself.
  Store::Text other(store.pool);
  ASSERT_TRUE(store.cache.reserve(other.table, 512));
  for (std::size_t i = 0; i < 512; ++i) store.slot(other, i) = static_cast<std::int32_t>(i);
  store.cache.publish("", text(512), other.table, other.cursor);
  EXPECT_EQ(store.cache.shared_pages("", text(512)), 2);
  store.end(text(512), other);
  EXPECT_EQ(store.ask(text(512)), 511);
  store.expect_whole();
}

TEST(PrefixCache, LongTextsComeBackInParts) {
  Store store(9, 20);
  store.ask(text(2048));
  store.ask(text(2304, 5000));
  Store::Text back(store.pool);
  store.cache.begin_step({}, 3);
  EXPECT_EQ(store.cache.adopt("", text(2048), back.table, back.cursor), 768);
  EXPECT_TRUE(back.cursor.waits);
  store.cache.begin_step({}, 100);
  EXPECT_EQ(store.cache.adopt("", text(2048), back.table, back.cursor), 2048);
  EXPECT_FALSE(back.cursor.waits);
  store.cache.release(back.table, back.cursor);
  store.expect_whole();
}

TEST(PrefixCache, PagesInUseAreNotMoved) {
  Store store(4, 8);
  Store::Text pinned(store.pool);
  ASSERT_TRUE(store.compute(text(512), pinned));
  store.cache.publish("", text(512), pinned.table, pinned.cursor);
  for (std::int32_t i = 1; i < 5; ++i) store.ask(text(512, 10000 * i));
  for (std::size_t i = 0; i < 512; ++i) EXPECT_EQ(store.slot(pinned, i), static_cast<int>(i));
  EXPECT_EQ(store.cache.shared_pages("", text(512)), 2);
  store.end(text(512), pinned);
  store.expect_whole();
}

TEST(PrefixCache, WhatIsFasterComputedIsNotMoved) {
  Store store(2, 8);
  // 1,024 bytes a page: two moves last as long as computing 100 tokens.
  store.cache.begin_step({.copy_bytes = 20480, .prefill_tokens = 1000}, 100);
  store.ask(text(256));
  store.ask(text(99, 5000));
  store.ask(text(512, 9000));
  EXPECT_EQ(store.cache.stats().pages_evicted, 2);
  EXPECT_EQ(store.cache.stats().pages_stored, 1);
  EXPECT_EQ(store.ask(text(256)), 255);
  EXPECT_EQ(store.ask(text(99, 5000)), 0);
}

TEST(HostTier, TakesWhatTheSystemGives) {
  Store store(2, 8);
  store.memory.allocations = 0;
  store.ask(text(512));
  EXPECT_EQ(store.ask(text(512, 5000)), 0);
  EXPECT_EQ(store.tier->slots(), 0);
  EXPECT_EQ(store.ask(text(512)), 0);
  store.expect_whole();
}

TEST(HostTier, NeedsRoomForTwoPages) {
  TokenPages memory(1);
  EXPECT_THROW(HostTier(memory, 2 * memory.page_bytes() - 1), Error);
  EXPECT_EQ(HostTier(memory, 2 * memory.page_bytes()).slots(), 2);
}

TEST(MoveRule, ComparesSeconds) {
  EXPECT_TRUE(is_worth_moving(1, 1 << 30, {}));
  EXPECT_TRUE(is_worth_moving(256, 1 << 20, {.copy_bytes = 1e9, .prefill_tokens = 1e3}));
  EXPECT_FALSE(is_worth_moving(1, 1 << 20, {.copy_bytes = 1e9, .prefill_tokens = 1e3}));
  EXPECT_FALSE(is_worth_moving(256, 1 << 20, {.copy_bytes = 1e6, .prefill_tokens = 1e3}));
}

// Texts that share beginnings come and go; each reads back its own tokens, and no page is lost.
TEST(PrefixCache, RandomTextsReadBackTheirOwnTokens) {
  std::int64_t restored = 0;
  std::int64_t dropped = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    Store store(static_cast<std::int32_t>(4 + below(12)), seed % 2 == 0 ? 0 : 2 + below(20));
    struct Live {
      Ids ids;
      Store::Text text;
    };
    std::vector<Live> live;
    for (int i = 0; i < 400; ++i) {
      store.cache.begin_step({}, static_cast<std::int64_t>(below(4)));
      if (live.size() < 4 && below(2) == 0) {
        Ids ids = text(1 + below(900), static_cast<std::int32_t>(below(2)) * 10000);
        for (std::size_t k = below(3); k > 0; --k)
          ids.push_back(static_cast<std::int32_t>(below(3)));
        Live next{ids, Store::Text(store.pool)};
        if (store.compute(ids, next.text)) {
          live.push_back(std::move(next));
        } else {
          store.cache.release(next.text.table, next.text.cursor);
        }
      } else if (!live.empty()) {
        const std::size_t at = below(live.size());
        if (below(3) == 0) {
          store.cache.publish("", live[at].ids, live[at].text.table, live[at].text.cursor);
        } else {
          store.end(live[at].ids, live[at].text);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
        }
      }
      for (const Live& one : live) {
        for (std::size_t k = 0; k < one.ids.size(); ++k) {
          ASSERT_EQ(store.slot(one.text, k), one.ids[k]);
        }
      }
    }
    for (Live& one : live) store.end(one.ids, one.text);
    store.expect_whole();
    if (store.tier) {
      restored += store.cache.stats().pages_restored;
      dropped += store.cache.stats().pages_dropped;
    }
  }
  EXPECT_GT(restored, 50);
  EXPECT_GT(dropped, 50);
}

}  // namespace
}  // namespace bl
