// Blocks whose products leave a part of what they add beside the residual stream, as a backend may:
// the stream is the same as without.

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "backend/device.h"
#include "nn/block.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

constexpr std::int64_t kStreamWidth = 64;
constexpr std::int64_t kBetween = 160;

// The reference backend's ops, and what some of its products leave: a quarter of their result, of
// several tokens two.
struct LeavingOps : OpTable {
  const OpTable* plain = nullptr;
  bool leaves = true;
  mutable int left = 0;   // times that rests were
  mutable int taken = 0;  // with a product's input or output
};

const LeavingOps& ops_of(const ExecContext& ctx) {
  return *static_cast<const LeavingOps*>(ctx.ops);
}

void add_to(const TensorView& rows, const TensorView& partials) {
  const std::int64_t size = rows.shape.elements();
  ASSERT_EQ(partials.shape.elements(), partials.rows() * size);
  for (std::int64_t i = 0; i < partials.shape.elements(); ++i) {
    rows.as<float>()[i % size] += partials.as<float>()[i];
  }
}

void leaving_matmul(ExecContext& ctx, const MatmulArgs& args) {
  const LeavingOps& ops = ops_of(ctx);
  ArenaScope scope(*ctx.scratch);
  MatmulArgs plain = args;
  plain.x = ctx.scratch->take_f32(args.x.shape);
  const std::int64_t size = args.x.shape.elements();
  std::copy_n(args.x.as<float>(), size, plain.x.as<float>());
  if (!args.prologue.partials.empty()) add_to(plain.x, args.prologue.partials);
  if (!args.prologue.sum.empty()) {
    EXPECT_FALSE(args.prologue.partials.empty());
    EXPECT_NE(args.prologue.sum.data, args.x.data) << "others may still read it";
    std::copy_n(plain.x.as<float>(), size, args.prologue.sum.as<float>());
  }
  if (!args.epilogue.partials.empty()) add_to(args.outputs[0].out, args.epilogue.partials);
  ops.taken += (args.prologue.partials.empty() ? 0 : 1) + (args.epilogue.partials.empty() ? 0 : 1);
  if (args.prologue.norm != nullptr) {
    NormArgs norm = *args.prologue.norm;
    norm.x = norm.out = plain.x;
    norm.x.shape = norm.out.shape = {args.x.rows(), 1, args.x.columns()};
    ops.plain->norm(ctx, norm);
  }
  plain.prologue = {};
  plain.epilogue.partials = plain.epilogue.partials_out = {};
  ops.plain->matmul(ctx, plain);
  if (args.epilogue.partials_out.empty()) return;
  EXPECT_NE(args.epilogue.partials_out.data, args.epilogue.partials.data)
      << "what is still read would be overwritten";
  ++ops.left;
  const TensorView& out = args.outputs[0].out;
  const std::int64_t width = out.shape.elements();
  for (std::int64_t i = 0; i < args.epilogue.partials_out.shape.elements(); ++i) {
    args.epilogue.partials_out.as<float>()[i] = 0.25f * out.as<float>()[i % width];
  }
  for (std::int64_t i = 0; i < width; ++i) {
    out.as<float>()[i] *= 1.0f - 0.25f * static_cast<float>(args.epilogue.partials_out.rows());
  }
}

GemmFusion leaving_fusion(const ExecContext& ctx, const GemmFusionQuery& query) {
  GemmFusion fusion{.norm = true};
  if (query.adds != nullptr && ops_of(ctx).leaves && query.adds->in() == kBetween) {
    fusion.partials = query.tokens == 1 ? 1 : 2;
  }
  return fusion;
}

class Stream : public testing::Test {
 protected:
  Stream() {
    static_cast<OpTable&>(ops_) = device_.ops();
    ops_.plain = &device_.ops();
    ops_.matmul = leaving_matmul;
    ops_.gemm_fusion = leaving_fusion;
    ctx_ = device_.context();
    ctx_.ops = &ops_;
  }

  Linear linear(std::int64_t in, std::int64_t out, bool biased = false) {
    Tensor bias;
    if (biased) {
      bias = make_host_tensor(DType::kF32, {out});
      const std::vector<float> values = random_.normal(out);
      std::copy(values.begin(), values.end(), bias.view().as<float>());
    }
    return {device_.backend().pack(random_dense({DType::kF32, in, out}, engine_), {}),
            std::move(bias)};
  }

  // Without attention.
  Block block(BlockSpec spec, bool biased = false) {
    spec.feed_forward = FeedForwardSpec{.hidden = kStreamWidth, .intermediate = kBetween};
    FeedForward::Weights weights;
    weights.gate = linear(kStreamWidth, kBetween);
    weights.up = linear(kStreamWidth, kBetween);
    weights.down = linear(kBetween, kStreamWidth, biased);
    Block::Weights all;
    all.feed_forward = FeedForward(*spec.feed_forward, std::move(weights));
    if (spec.feed_forward_norm) all.feed_forward_norm = Norm(*spec.feed_forward_norm, {}, {});
    if (spec.feed_forward_post_norm) {
      all.feed_forward_post_norm = Norm(*spec.feed_forward_post_norm, {}, {});
    }
    all.output_scale = 0.5f;
    return {spec, std::move(all)};
  }

  // The stream behind these blocks.
  std::vector<float> run(const std::vector<Block>& blocks, bool leaves, std::int64_t tokens) {
    ops_.leaves = leaves;
    ops_.left = ops_.taken = 0;
    ArenaScope scope(*ctx_.scratch);
    Random random(4);
    const TensorView x = device_.put(random.normal(tokens * kStreamWidth), {tokens, kStreamWidth});
    ResidualStream stream(x, PartialSumRoom::take(ctx_, tokens, kStreamWidth));
    for (const Block& one : blocks) one.forward(ctx_, {}, stream);
    return device_.get(stream.whole(ctx_));
  }

  // How often rests are left, and how often they are taken.
  struct Times {
    int left = 0;
    int taken = 0;
  };
  void expect_same(const std::vector<Block>& blocks, std::int64_t tokens, const Times& times) {
    const std::vector<float> expected = run(blocks, false, tokens);
    EXPECT_EQ(ops_.left, 0);
    EXPECT_LE(worst_difference(run(blocks, true, tokens), expected), 1e-5);
    EXPECT_EQ(ops_.left, times.left);
    EXPECT_EQ(ops_.taken, times.taken);
  }

  Device device_{"ref"};
  LeavingOps ops_;
  ExecContext ctx_;
  Random random_{2};
  Engine engine_{3};
};

BlockSpec normed() {
  BlockSpec spec;
  spec.feed_forward_norm = NormSpec{};
  return spec;
}

TEST_F(Stream, RestsGoFromBlockToBlock) {
  std::vector<Block> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(block(normed(), i == 2));
  // Each but the first reads one with gate and up, and adds to it.
  expect_same(blocks, 1, {4, 6});
  // Of several tokens gate and up leave the whole stream behind.
  expect_same(blocks, 3, {4, 3});
}

TEST_F(Stream, WhoAsksForAllOfItGetsAll) {
  std::vector<Block> blocks;
  blocks.push_back(block(normed()));
  BlockSpec scaled = normed();  // the stream times a number behind it
  scaled.output_scale = true;
  blocks.push_back(block(scaled));
  BlockSpec bare;  // its product reads the stream as it is
  blocks.push_back(block(bare));
  blocks.push_back(block(bare));
  BlockSpec behind = normed();  // nothing is left where a norm comes behind the product
  behind.feed_forward_post_norm = NormSpec{};
  blocks.push_back(block(behind));
  BlockSpec multiplied = normed();
  multiplied.residual_multiplier = 0.3f;
  blocks.push_back(block(multiplied));
  blocks.push_back(block(multiplied, true));
  blocks.push_back(block(normed()));
  // Of the second block (2), the fifth (1), and those behind it: the sixth (1: the fifth's rest,
  // which it adds up with its own), the seventh (1: a bias makes its product one of its own), the
  // last (2).
  expect_same(blocks, 1, {6, 8});
  // Of several tokens those of the first block, the fourth and the sixth, by gate and up behind
  // them.
  expect_same(blocks, 5, {6, 3});
}

TEST_F(Stream, NothingIsLeftBesideAdapters) {
  std::vector<Block> blocks;
  for (int i = 0; i < 2; ++i) blocks.push_back(block(normed()));
  for (const std::int64_t tokens : {1, 2}) {
    StepAdapters adapters;
    adapters.append(nullptr, tokens);
    ctx_.adapters = &adapters;
    expect_same(blocks, tokens, {0, 0});
  }
}

TEST_F(Stream, NoneWhereNoneAreAllowed) {
  const std::vector<float> values = random_.normal(kStreamWidth);
  ArenaScope scope(*ctx_.scratch);
  ResidualStream stream(device_.put(values, {1, kStreamWidth}));
  const Block one = block(normed());
  one.forward(ctx_, {}, stream);
  ResidualStream forbidden(stream.x(), PartialSumRoom::take(ctx_, 1, kStreamWidth));
  forbidden.forbid_partials();
  one.forward(ctx_, {}, forbidden);
  // Many tokens have no room for them.
  EXPECT_TRUE(
      PartialSumRoom::take(ctx_, PartialSumRoom::kMostTokens + 1, kStreamWidth).partials.empty());
  EXPECT_EQ(ops_.left, 0);
}

}  // namespace
}  // namespace bl::test
