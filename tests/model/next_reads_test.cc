// Products of a block's feed-forward are told which attention comes next, and no others are; all
// products of a block are told which weights do.

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "model/golden.h"

namespace bl::test {
namespace {

// What a product was told.
struct Told {
  const std::byte* behind = nullptr;  // keys of attention whose queries a GEMM makes
  const std::byte* next = nullptr;    // keys of attention that comes later
  std::int64_t next_heads = 0;
  bool accumulates = false;
  std::vector<const PackedMatrix*> weights;       // its own
  std::vector<const PackedMatrix*> next_weights;  // PrefetchHint::weights
  bool partly_issued = false;
};

struct HintListener {
  OpTable ops;
  const OpTable* plain = nullptr;
  std::vector<Told> told;
};

HintListener& hint_listener() {
  static HintListener it;
  return it;
}

void listening_matmul(ExecContext& ctx, const MatmulArgs& args) {
  Told told;
  told.accumulates = args.epilogue.accumulate;
  const PrefetchHint& hint = args.prefetch;
  if (hint.attention != nullptr && hint.feeds_attention) told.behind = hint.attention->cache.k;
  if (hint.attention != nullptr && !hint.feeds_attention) {
    EXPECT_TRUE(hint.attention->q.empty());
    told.next = hint.attention->cache.k;
    told.next_heads = hint.attention->q.shape[1];
  }
  for (const MatmulOutput& output : args.outputs) told.weights.push_back(output.weight);
  const NextWeights& next = hint.weights;
  told.next_weights.assign(next.matrices, next.matrices + next.count);
  told.partly_issued = next.partly_issued;
  hint_listener().told.push_back(told);
  hint_listener().plain->matmul(ctx, args);
}

// A step of a golden model whose products are listened to, by the blocks of a layer map.
class NextReads : public testing::Test {
 protected:
  void run(const char* model, const char* layer_map = "") {
    LoadOptions options;
    options.spec.layer_map = layer_map;
    run_.emplace("ref", golden_folder("hf-tiny") / model, CacheType::kF16, std::move(options));
    hint_listener() = {run_->backend().ops(), &run_->backend().ops(), {}};
    hint_listener().ops.matmul = listening_matmul;
    run_->use(hint_listener().ops);
    run_->logits({some_ids(5, run_->model().vocab())});
    for (std::size_t i = 0; i < hint_listener().told.size(); ++i) {
      if (hint_listener().told[i].behind != nullptr) blocks.push_back(i);
    }
  }

  std::optional<GoldenRun> run_;
  std::vector<std::size_t> blocks;  // where the products of each block's queries are
};

TEST_F(NextReads, AttentionIsToldToTheFeedForward) {
  constexpr std::size_t kBlocks = 4;
  run("llama", "0..1,1,0");
  ASSERT_EQ(blocks.size(), kBlocks);
  for (std::size_t b = 0; b < kBlocks; ++b) {
    SCOPED_TRACE(b);
    const bool last = b + 1 == kBlocks;
    const Told* told = hint_listener().told.data() + blocks[b];
    EXPECT_EQ(told[0].next, nullptr);  // q, k, v
    EXPECT_EQ(told[1].next, nullptr);  // o
    EXPECT_TRUE(told[1].accumulates);
    const std::byte* keys = last ? nullptr : hint_listener().told[blocks[b + 1]].behind;
    EXPECT_EQ(told[2].next, keys);  // gate and up
    EXPECT_EQ(told[3].next, keys);  // down
    EXPECT_TRUE(told[3].accumulates);
    if (last) continue;
    EXPECT_NE(keys, told[0].behind);
    EXPECT_EQ(told[3].next_heads, run_->model().spec().blocks[0].attention->heads);
  }
  EXPECT_EQ(hint_listener().told.back().next, nullptr);  // the output layer
}

TEST_F(NextReads, WeightsAreToldToAllProductsOfABlock) {
  run("llama", "0..1,1,0");
  ASSERT_EQ(blocks.size(), 4u);
  const Told& head = hint_listener().told.back();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    SCOPED_TRACE(b);
    const Told* told = hint_listener().told.data() + blocks[b];
    EXPECT_EQ(told[2].weights.size(), 2u);
    EXPECT_EQ(told[0].next_weights, told[2].weights);  // q, k, v: of gate and up
    EXPECT_EQ(told[1].next_weights, told[2].weights);  // o: the same
    EXPECT_EQ(told[2].next_weights, told[3].weights);  // gate and up: of down
    const Told& behind = b + 1 == blocks.size() ? head : hint_listener().told[blocks[b + 1]];
    EXPECT_EQ(told[3].next_weights, behind.weights);
    for (const int i : {0, 1, 2, 3}) EXPECT_EQ(told[i].partly_issued, i == 1);
  }
  EXPECT_TRUE(head.next_weights.empty());
}

// Experts are chosen when attention has ended: nobody can say which matrices will be read.
TEST_F(NextReads, WeightsOfExpertsAreNot) {
  run("mixtral");
  ASSERT_FALSE(blocks.empty());
  for (const Told& told : hint_listener().told) EXPECT_TRUE(told.next_weights.empty());
}

}  // namespace
}  // namespace bl::test
