// How spans and their keys are divided among the attention kernels; needs no card.

#include "backend/cuda/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/kv_layout.h"

namespace bl::cuda {
namespace {

struct Sequences {
  std::vector<std::vector<std::int32_t>> pages;
  std::vector<SequenceSpan> spans;

  void add(int past, int tokens) {
    const int first = spans.empty() ? 0 : spans.back().first_token + spans.back().tokens;
    auto& own =
        pages.emplace_back(static_cast<std::size_t>((past + tokens + kPageSlots - 1) / kPageSlots));
    std::iota(own.begin(), own.end(), 100 * static_cast<int>(pages.size()));
    // The vectors move when `pages` grows, but their elements stay where they are.
    spans.push_back({.first_token = first, .tokens = tokens, .past = past, .pages = own.data()});
  }
};

SpanEntry entry_of(const SpanPlan& plan, int span) {
  const std::int32_t* at = plan.packed.data() + sizeof(SpanEntry) / 4 * span;
  return {.first_token = at[0], .tokens = at[1], .past = at[2]};
}

TEST(AttentionPlan, BucketsGrowByHalves) {
  const std::vector<int> expected{1, 1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16};
  for (int pages = 0; pages < static_cast<int>(expected.size()); ++pages) {
    EXPECT_EQ(page_bucket(pages), expected[static_cast<std::size_t>(pages)]) << pages;
  }
  for (int pages = 1; pages < 5000; ++pages) {
    EXPECT_GE(page_bucket(pages), pages);
    EXPECT_LE(page_bucket(pages), std::max(1, pages * 3 / 2)) << pages;
    EXPECT_EQ(page_bucket(page_bucket(pages)), page_bucket(pages));
  }
}

TEST(AttentionPlan, DecodeComesFirst) {
  Sequences s;
  s.add(0, 300);
  s.add(700, 1);
  s.add(5, 0);
  s.add(255, 8);
  s.add(10, 9);
  const SpanPlan plan = plan_spans(s.spans);
  EXPECT_EQ(plan.decode_spans, 2);
  EXPECT_EQ(plan.prefill_spans, 2);
  EXPECT_EQ(plan.decode_tokens, 8);
  EXPECT_EQ(plan.prefill_tokens, 300);
  EXPECT_EQ(plan.page_stride, 3);
  EXPECT_EQ(plan.graph_key(), 0u);
  const std::vector<std::size_t> order{1, 3, 0, 4};
  for (int i = 0; i < 4; ++i) {
    const SequenceSpan& span = s.spans[order[static_cast<std::size_t>(i)]];
    EXPECT_EQ(entry_of(plan, i).first_token, span.first_token);
    EXPECT_EQ(entry_of(plan, i).tokens, span.tokens);
    EXPECT_EQ(entry_of(plan, i).past, span.past);
    const int pages = (span.past + span.tokens + kPageSlots - 1) / kPageSlots;
    const std::int32_t* row = plan.packed.data() + plan.pages_offset() + i * plan.page_stride;
    EXPECT_TRUE(std::equal(row, row + pages, span.pages)) << i;
  }
  EXPECT_EQ(plan.packed.size(), plan.counters_offset() + 2 * kCountersPerSpan);
  EXPECT_TRUE(std::all_of(plan.packed.begin() + static_cast<std::ptrdiff_t>(plan.counters_offset()),
                          plan.packed.end(), [](int x) { return x == 0; }));
  EXPECT_LE(plan.packed.size(), packed_ints(5, 3));
}

// A few tokens behind a cached prefix are few rows over many keys: they go to the kernel that
// splits the keys, and no graph is recorded for a length that will hardly occur again.
TEST(AttentionPlan, AFewTokensBehindALongPastAreDecode) {
  const auto counts_of = [](std::vector<std::pair<int, int>> spans) {
    Sequences s;
    for (const auto& [past, tokens] : spans) s.add(past, tokens);
    const SpanPlan plan = plan_spans(s.spans);
    EXPECT_EQ(plan.decode_spans, count_spans(s.spans).decode_spans);
    return plan;
  };
  const SpanPlan one = counts_of({{4000, 16}});
  EXPECT_EQ(one.decode_spans, 1);
  EXPECT_EQ(one.decode_tokens, 16);
  EXPECT_EQ(one.graph_key(), 0u);
  EXPECT_EQ(one.packed.size(), one.counters_offset() + kCountersPerSpan);
  EXPECT_EQ(counts_of({{4000, 1}, {4000, 64}}).decode_spans, 2);
  EXPECT_EQ(counts_of({{4000, 65}}).prefill_spans, 1);
  EXPECT_EQ(counts_of({{0, 16}}).prefill_spans, 1);
  EXPECT_EQ(counts_of({{kLongPast, 16}}).decode_spans, 1);
  // All spans of a decode launch get room for the longest one's tokens.
  std::vector<std::pair<int, int>> many(kLaunchTokens / 16, {2000, 1});
  EXPECT_EQ(counts_of(many).decode_spans, kLaunchTokens / 16);
  many.push_back({4000, 16});
  EXPECT_EQ(counts_of(many).prefill_spans, 1);
}

TEST(AttentionPlan, NothingToDo) {
  EXPECT_TRUE(plan_spans({}).packed.empty());
  EXPECT_EQ(count_spans({}).graph_key(), 0u);
}

// Counts make up a step's key and need no pages: they are null here and must not be read.
TEST(AttentionPlan, CountsNeedNoPages) {
  const std::vector<SequenceSpan> spans{{.first_token = 0, .tokens = 4, .past = 1000},
                                        {.first_token = 4, .tokens = 0, .past = 90000},
                                        {.first_token = 4, .tokens = 1, .past = 2000}};
  const SpanCounts counts = count_spans(spans);
  EXPECT_EQ(counts.decode_spans, 2);
  EXPECT_EQ(counts.prefill_spans, 0);
  EXPECT_EQ(counts.decode_tokens, 4);
  EXPECT_EQ(counts.page_stride, page_bucket(2001 / kPageSlots + 1));
  EXPECT_NE(counts.graph_key(), 0u);
  std::vector<SequenceSpan> with_prefill = spans;
  with_prefill.push_back({.first_token = 5, .tokens = kDecodeTokens + 1, .past = 0});
  EXPECT_EQ(count_spans(with_prefill).graph_key(), 0u);
}

// A table that is too large to be refilled in every step is not recorded.
TEST(AttentionPlan, LargeTablesHaveNoKey) {
  const SequenceSpan span{.first_token = 0, .tokens = 1, .past = 131071};
  EXPECT_NE(count_spans(std::vector<SequenceSpan>(100, span)).graph_key(), 0u);
  EXPECT_EQ(count_spans(std::vector<SequenceSpan>(1000, span)).graph_key(), 0u);
}

// Lengths of one bucket share a key and everything that a launch depends on.
TEST(AttentionPlan, KeysNameLaunches) {
  const auto plan_of = [](int past, int tokens, int count) {
    Sequences s;
    for (int i = 0; i < count; ++i) s.add(past + i, tokens);
    EXPECT_EQ(count_spans(s.spans).graph_key(), plan_spans(s.spans).graph_key());
    return plan_spans(s.spans);
  };
  const SpanPlan plan = plan_of(1030, 1, 4);
  EXPECT_NE(plan.graph_key(), 0u);
  const SpanPlan later = plan_of(1500, 1, 4);
  EXPECT_EQ(later.graph_key(), plan.graph_key());
  EXPECT_EQ(later.packed.size(), plan.packed.size());
  EXPECT_NE(plan_of(1540, 1, 4).graph_key(), plan.graph_key());
  EXPECT_NE(plan_of(1030, 2, 4).graph_key(), plan.graph_key());
  EXPECT_NE(plan_of(1030, 1, 5).graph_key(), plan.graph_key());
}

// Every span's keys are covered, and partial results fit into the planned memory.
void expect_sound(const DecodeShape& shape) {
  const DecodeSplit split = split_decode(shape);
  const auto label = testing::Message() << shape.spans << " spans of " << shape.tokens << ", heads "
                                        << shape.kv_heads << " x " << shape.group << ", keys "
                                        << shape.max_keys << ", window " << shape.window;
  SCOPED_TRACE(label);
  ASSERT_GE(split.kv_splits, 1);
  ASSERT_LE(split.kv_splits, kMaxKvSplits);
  ASSERT_GE(split.spans_per_launch, 1);
  ASSERT_GE(split.heads_per_launch, 1);
  ASSERT_GE(split.row_tiles * kQueryTile, shape.tokens * shape.group);
  if (split.clusters) {
    EXPECT_TRUE(shape.clusters);
    EXPECT_EQ(split.row_tiles, 1);
    EXPECT_GE(split.kv_splits, 2);
    EXPECT_LE(split.kv_splits, kMostClusterCtas);
    // All of them at once.
    EXPECT_LE(split.kv_splits * split.heads_per_launch * split.spans_per_launch,
              shape.multiprocessors);
  } else if (split.kv_splits > 1) {
    ASSERT_LE(split.row_tiles * split.heads_per_launch, kCountersPerSpan);
    const std::int64_t rows = std::int64_t{split.spans_per_launch} * split.heads_per_launch *
                              split.kv_splits * split.span_rows;
    // Every span has at least one token, and one span has the most.
    const std::int64_t tokens = shape.spans - 1 + shape.tokens;
    EXPECT_LE(rows, decode_partial_rows(tokens, std::int64_t{shape.kv_heads} * shape.group,
                                        shape.multiprocessors));
  }
  for (const int length : {shape.tokens, shape.tokens + 1, shape.max_keys / 3,
                           shape.max_keys / 2 + 1, shape.max_keys - 1, shape.max_keys}) {
    if (length < shape.tokens) continue;
    const int keys = length - first_key_of(length - shape.tokens, shape.window);
    const int kv_split = split.clusters ? even_split_keys(keys, split.kv_splits) : split.split_keys;
    if (split.clusters) {
      EXPECT_LE(kv_split, split.split_keys);
    }
    ASSERT_EQ(kv_split % kTileKeys, 0);
    EXPECT_GE(std::int64_t{kv_split} * split.kv_splits, keys) << "length " << length;
  }
}

TEST(AttentionPlan, PiecesCoverAllKeys) {
  for (const int spans : {1, 3, 16, 64, 200}) {
    for (const int tokens : {1, 4, 8, 16, 33, 64}) {
      for (const auto& [kv_heads, group] :
           {std::pair{8, 4}, std::pair{1, 71}, std::pair{96, 1}, std::pair{2, 7}}) {
        for (const int keys : {256, 768, 4096, 16384, 131072}) {
          for (const int window : {0, 1, 128, 4096}) {
            for (const bool clusters : {false, true}) {
              expect_sound({.spans = spans,
                            .tokens = tokens,
                            .kv_heads = kv_heads,
                            .group = group,
                            .max_keys = keys,
                            .window = window,
                            .multiprocessors = 132,
                            .clusters = clusters});
            }
          }
        }
      }
    }
  }
}

// One long sequence must occupy the whole card, which is why its keys are split.
TEST(AttentionPlan, OneSequenceFillsTheCard) {
  for (const int keys : {4096, 16384, 32768}) {
    const DecodeSplit split = split_decode({.spans = 1,
                                            .tokens = 1,
                                            .kv_heads = 8,
                                            .group = 4,
                                            .max_keys = keys,
                                            .multiprocessors = 132});
    EXPECT_GE(split.kv_splits * 8, 120) << keys;
    EXPECT_LE(split.split_keys, std::max(256, keys / 32)) << keys;
    EXPECT_GE(split.split_keys, 256) << keys;
  }
}

DecodeSplit split_of(int spans, int kv_heads, int keys, int window = 0) {
  return split_decode({.spans = spans,
                       .tokens = 1,
                       .kv_heads = kv_heads,
                       .group = 32 / kv_heads,
                       .max_keys = keys,
                       .window = window,
                       .multiprocessors = 132,
                       .clusters = true});
}

// Clusters combine the results of split keys sooner, if the card has room for all of them at once
// and the launch is not needed to fill it.
TEST(AttentionPlan, PiecesOfFewHeadsAreClusters) {
  EXPECT_FALSE(split_of(1, 8, 256).clusters);  // one piece
  EXPECT_EQ(split_of(1, 8, 256).kv_splits, 1);
  for (const int keys : {512, 1024, 4096, 8192}) {
    const DecodeSplit split = split_of(1, 8, keys);
    EXPECT_TRUE(split.clusters) << keys;
    EXPECT_EQ(split.kv_splits, std::min(keys / 256, kMostClusterCtas)) << keys;
    EXPECT_EQ(split.warps, keys <= 2048 ? kUsualWarps : kWideWarps) << keys;
  }
  EXPECT_FALSE(split_of(1, 8, 16384).clusters);
  EXPECT_GE(split_of(1, 8, 16384).kv_splits * 8, 120);
  EXPECT_TRUE(split_of(1, 8, 16384, 1024).clusters);  // a window leaves few keys
  EXPECT_FALSE(split_of(1, 8, 16384, 128).clusters);
  // Many columns, from heads or from sequences.
  EXPECT_FALSE(split_of(1, 32, 4096).clusters);
  EXPECT_TRUE(split_of(2, 8, 4096).clusters);
  EXPECT_FALSE(split_of(3, 8, 4096).clusters);
  EXPECT_TRUE(split_of(3, 8, 1024).clusters);
  EXPECT_FALSE(split_of(16, 8, 1024).clusters);
}

// GEMMs in front prefetch what a launch reads first: whole runs of keys, no more than a piece has,
// and no more than memory delivers while it would idle.
TEST(AttentionPlan, KeysArePrefetched) {
  constexpr int kRow = 2 * 128 * 2;  // a key and a value of 128 halves
  constexpr KeyPrefetchSite kAskers[] = {KeyPrefetchSite::kQueries, KeyPrefetchSite::kDown,
                                         KeyPrefetchSite::kGate};
  const auto ahead_of = [](const DecodeSplit& split, int heads, KeyPrefetchSite site) {
    const KeyRange keys = key_prefetch_of_split(split, heads, kRow, site);
    return std::pair(keys.begin, keys.end);
  };
  const std::pair none(0, 0);
  EXPECT_EQ(ahead_of(split_of(1, 8, 256), 8, KeyPrefetchSite::kQueries), none);
  for (const int heads : {2, 8, 32}) {
    for (const int keys : {512, 1024, 4096, 16384}) {
      const DecodeSplit split = split_of(1, heads, keys);
      int asked = 0;
      std::int64_t most = 0;  // bytes, including earlier sites
      for (const KeyPrefetchSite site : kAskers) {
        const auto [begin, end] = ahead_of(split, heads, site);
        EXPECT_EQ(begin, asked);  // no gap and no overlap
        EXPECT_EQ((end - begin) % 16, 0);
        EXPECT_LE(end, split.split_keys);
        most += site == KeyPrefetchSite::kQueries ? 12 << 20 : 6 << 20;
        EXPECT_LE(std::int64_t{end} * split.kv_splits * heads * kRow, most);
        EXPECT_GT(end, 0);
        asked = end;
      }
    }
  }
  EXPECT_EQ(ahead_of(split_of(1, 2, 1024), 2, KeyPrefetchSite::kQueries),
            std::pair(0, 256));  // all of them
  EXPECT_EQ(ahead_of(split_of(1, 2, 1024), 2, KeyPrefetchSite::kDown), std::pair(256, 256));
  // Long contexts with many heads leave something for each site.
  const DecodeSplit wide = split_of(1, 32, 4096);
  for (const KeyPrefetchSite site : kAskers) {
    const auto [begin, end] = ahead_of(wide, 32, site);
    EXPECT_LT(begin, end);
  }
  DecodeSplit tiles = wide;
  tiles.row_tiles = 2;  // CTAs that read the same keys
  EXPECT_EQ(ahead_of(tiles, 32, KeyPrefetchSite::kQueries), none);
}

// Kernels for plain attention are limited to few pages: each lane of a warp holds one.
TEST(AttentionPlan, PlainCasesAreOfFewPages) {
  EXPECT_EQ(plain_case(split_of(1, 8, 256), 1), DecodeSpecialization::kPlainOneSplit);
  EXPECT_EQ(plain_case(split_of(1, 8, 4096), 16), DecodeSpecialization::kPlainCluster);
  EXPECT_EQ(plain_case(split_of(1, 8, 8192), 32), DecodeSpecialization::kPlainCluster);
  EXPECT_EQ(plain_case(split_of(1, 8, 16384), 64), DecodeSpecialization::kPlainPartials);
  EXPECT_EQ(plain_case(split_of(1, 32, 4096), 16), DecodeSpecialization::kPlainPartials);
  DecodeSplit whole;  // one piece, however many pages
  EXPECT_EQ(plain_case(whole, kFewPages), DecodeSpecialization::kPlainOneSplit);
  EXPECT_EQ(plain_case(whole, kFewPages + 1), DecodeSpecialization::kAny);
  whole.clusters = true;
  EXPECT_EQ(plain_case(whole, kFewPages + 1), DecodeSpecialization::kAny);
}

// Heads of more than 128 have no cluster kernels, whatever else holds.
TEST(AttentionPlan, FormsHaveKernels) {
  const auto form_of = [](CacheTypes type, int dim, int rows) {
    return decode_form(type, dim, dim, rows);
  };
  for (const CacheTypes type : kAllCacheTypes) {
    if (type == CacheType::kF32) continue;
    const bool half = type == CacheType::kF16;
    const bool own = has_own_kernels(type);
    for (const int dim : {8, 64, 80, 128, 192, 256}) {
      for (const int rows : {1, 4, 8, 9, 64}) {
        const DecodeForm form = form_of(type, dim, rows);
        const bool in_registers = own && rows <= kFewRows && (dim == 64 || dim == 128);
        const bool lean = half || in_registers || (!own && dim <= 128);
        EXPECT_EQ(form.source, half           ? FragmentSource::kHalves
                               : in_registers ? FragmentSource::kCodes
                                              : FragmentSource::kTile);
        EXPECT_EQ(form.query_tiles, rows <= kFewRows && lean ? 1 : 2);
        EXPECT_EQ(form.clusters, dim <= 128 && form.query_tiles == 1) << dim << " x " << rows;
      }
    }
  }
  EXPECT_EQ(decode_form(CacheType::kQ4, 128, 64, 4).source, FragmentSource::kTile);
  EXPECT_EQ(decode_form({CacheType::kQ5, CacheType::kQ3}, 64, 192, 4).query_tiles, 2);
  EXPECT_FALSE(decode_form(CacheType::kF16, 192, 128, 4).clusters);
}

// The kernel for compute capability 9.0 takes steps whose rows fill several tiles of the other
// kernel, if its clusters all fit on the card at once.
TEST(AttentionPlan, ManyRowsBehindALongPastAreClusters) {
  const DecodeShape usual{.spans = 1,
                          .tokens = 16,
                          .kv_heads = 8,
                          .group = 4,
                          .max_keys = 4096,
                          .multiprocessors = 132,
                          .clusters = true};
  EXPECT_EQ(split_hopper(usual).row_tiles, 1);
  EXPECT_EQ(split_hopper(usual).kv_splits, kMostClusterCtas);
  const auto kv_splits = [&](const auto& change) {
    DecodeShape shape = usual;
    change(shape);
    return split_hopper(shape).kv_splits;
  };
  EXPECT_EQ(kv_splits([](DecodeShape& s) { s.clusters = false; }), 0);
  EXPECT_EQ(kv_splits([](DecodeShape& s) { s.tokens = 4; }), 0);  // one tile of the other kernel
  EXPECT_EQ(kv_splits([](DecodeShape& s) { s.tokens = 5; }), kMostClusterCtas);
  EXPECT_EQ(kv_splits([](DecodeShape& s) { s.tokens = 64; }), 4);
  EXPECT_EQ(kv_splits([](DecodeShape& s) { s.max_keys = 512; }), 2);
  EXPECT_EQ(kv_splits([](DecodeShape& s) { s.max_keys = 256; }), 0);
  EXPECT_EQ(kv_splits([](DecodeShape& s) { s.window = 300; }),
            0);  // the window leaves too few keys
  EXPECT_EQ(kv_splits([](DecodeShape& s) { s.window = 1024; }), 4);
  EXPECT_EQ(kv_splits([](DecodeShape& s) { s.spans = 9; }), 0);
  for (int spans = 1; spans < 20; ++spans) {
    for (int tokens = 5; tokens <= kShortTokens; ++tokens) {
      DecodeShape shape = usual;
      shape.spans = spans;
      shape.tokens = tokens;
      const HopperSplit split = split_hopper(shape);
      EXPECT_GE(split.row_tiles * kHopperSplitRows, tokens * shape.group);
      EXPECT_LE(spans * shape.kv_heads * split.row_tiles * split.kv_splits, shape.multiprocessors);
    }
  }
}

}  // namespace
}  // namespace bl::cuda
