// Products of a block's feed-forward are told which attention comes next, and no others are.

#include <gtest/gtest.h>

#include <vector>

#include "model/golden.h"

namespace bl::test {
namespace {

// What a product was told.
struct Told {
  const std::byte* behind = nullptr;  // keys of MatmulArgs::attention_behind
  const std::byte* next = nullptr;    // of ExecContext::next_attention
  std::int64_t next_heads = 0;
  bool accumulates = false;
};

struct Listener {
  OpTable ops;
  const OpTable* plain = nullptr;
  std::vector<Told> told;
};

Listener& listener() {
  static Listener it;
  return it;
}

void listening_matmul(ExecContext& ctx, const MatmulArgs& args) {
  Told told{.accumulates = args.accumulate};
  if (args.attention_behind != nullptr) told.behind = args.attention_behind->cache.k;
  if (ctx.next_attention != nullptr) {
    EXPECT_TRUE(ctx.next_attention->q.empty());
    told.next = ctx.next_attention->cache.k;
    told.next_heads = ctx.next_attention->q.shape[1];
  }
  listener().told.push_back(told);
  listener().plain->matmul(ctx, args);
}

TEST(NextAttention, IsToldToTheFeedForward) {
  LoadOptions options;
  options.spec.layer_map = "0..1,1,0";
  constexpr std::size_t kBlocks = 4;
  GoldenRun run("ref", golden_folder("hf-tiny") / "llama", CacheType::kF16, std::move(options));
  listener() = {run.backend().ops(), &run.backend().ops(), {}};
  listener().ops.matmul = listening_matmul;
  run.use(listener().ops);
  run.logits({some_ids(5, run.model().vocab())});

  // Where the products of each block's queries are.
  std::vector<std::size_t> blocks;
  for (std::size_t i = 0; i < listener().told.size(); ++i) {
    if (listener().told[i].behind != nullptr) blocks.push_back(i);
  }
  ASSERT_EQ(blocks.size(), kBlocks);
  for (std::size_t b = 0; b < kBlocks; ++b) {
    SCOPED_TRACE(b);
    const bool last = b + 1 == kBlocks;
    const Told* told = listener().told.data() + blocks[b];
    EXPECT_EQ(told[0].next, nullptr);  // q, k, v
    EXPECT_EQ(told[1].next, nullptr);  // o
    EXPECT_TRUE(told[1].accumulates);
    const std::byte* keys = last ? nullptr : listener().told[blocks[b + 1]].behind;
    EXPECT_EQ(told[2].next, keys);  // gate and up
    EXPECT_EQ(told[3].next, keys);  // down
    EXPECT_TRUE(told[3].accumulates);
    if (last) continue;
    EXPECT_NE(keys, told[0].behind);
    EXPECT_EQ(told[3].next_heads, run.model().spec().blocks[0].attention->heads);
  }
  EXPECT_EQ(listener().told.back().next, nullptr);  // the output layer
}

}  // namespace
}  // namespace bl::test
