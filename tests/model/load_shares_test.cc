// The shares of a model, put together in the most naive way, are the model.

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "model/golden.h"
#include "model/shard_plan.h"

namespace bl::test {
namespace {

using Features = std::vector<std::int32_t>;

// One linear of a share, and the features of the whole that it has.
struct Shard {
  const Linear* linear = nullptr;
  ShardRule rule = ShardRule::kReplicate;
  Features features;
};

// Position of each of `some` in `all`, or the values themselves where all are in order.
Features places_in(const std::vector<std::int64_t>& all, const std::vector<std::int64_t>& some) {
  Features places;
  for (const std::int64_t row : some) {
    places.push_back(
        static_cast<std::int32_t>(std::find(all.begin(), all.end(), row) - all.begin()));
  }
  return places;
}

// All shares of a model, each loaded from a plan of its own.
class Shares {
 public:
  Shares(RefBackend& backend, const ModelFiles& files, int count) {
    ModelLoader whole(backend, files, {});
    for (int i = 0; i < count; ++i) {
      LoadOptions options;
      options.share = {i, count};
      ModelLoader loader(backend, files, options);
      models_.emplace_back(backend, loader.load_parts(backend, {}));
      models_.back().visit([&](const std::string&, const Linear& linear) {
        shards_[linear.id()].push_back(shard_of(loader.load_plan(), whole.load_plan(), linear));
      });
    }
  }
  const std::vector<Shard>& of(const Linear& linear) const { return shards_.at(linear.id()); }

 private:
  static const LoadTask& task_of(const LoadPlan& plan, std::int32_t linear) {
    return plan.tasks[static_cast<std::size_t>(plan.linears[static_cast<std::size_t>(linear)])];
  }
  static Shard shard_of(const LoadPlan& plan, const LoadPlan& whole, const Linear& linear) {
    const LoadTask& task = task_of(plan, linear.id());
    const auto& work = std::get<MatrixWork>(task.work);
    Shard shard{&linear, shard_rule(task.target.role), work.cut.features};
    // Rows that a plain matrix is gathered from are cut themselves.
    const auto& all = std::get<MatrixWork>(task_of(whole, linear.id()).work).rows;
    if (!all.empty()) shard.features = places_in(all, work.rows);
    if (shard.rule == ShardRule::kSplitOut) {
      shard.features.resize(static_cast<std::size_t>(linear.out()));  // without padding
    }
    return shard;
  }

  std::list<Model> models_;
  std::map<std::int32_t, std::vector<Shard>> shards_;
};

const TensorView& weight_of(const Linear& linear) {
  return static_cast<const RefMatrix&>(linear.weight()).weight();
}

// Every weight of the whole is in one share, with the same bits, or in all of them.
void expect_same_weights(const Linear& whole, const std::vector<Shard>& shards) {
  const TensorView& weight = weight_of(whole);
  std::vector<int> seen(static_cast<std::size_t>(weight.shape.elements()), 0);
  long wrong = 0;
  for (const Shard& shard : shards) {
    const TensorView& part = weight_of(*shard.linear);
    for (std::int64_t i = 0; i < part.rows(); ++i) {
      for (std::int64_t c = 0; c < part.columns(); ++c) {
        const auto of = [&](ShardRule rule, std::int64_t place) {
          return shard.rule == rule ? shard.features[static_cast<std::size_t>(place)] : place;
        };
        const std::int64_t row = of(ShardRule::kSplitIn, i);
        const std::int64_t column = of(ShardRule::kSplitOut, c);
        wrong += part.row<float>(i)[c] != weight.row<float>(row)[column];
        ++seen[static_cast<std::size_t>(row * weight.columns() + column)];
      }
    }
  }
  EXPECT_EQ(wrong, 0);
  const int times = shards[0].rule == ShardRule::kReplicate ? static_cast<int>(shards.size()) : 1;
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [&](int n) { return n == times; }));
}

class LoadedShares : public testing::TestWithParam<std::string> {};

TEST_P(LoadedShares, HaveEveryWeightOnce) {
  int cut = 0;
  for (const int count : {2, 3}) {
    SCOPED_TRACE(count);
    RefBackend backend(1);
    const ModelFiles files = open_model_folder(model_folder(GetParam()));
    Model whole(backend, ModelLoader(backend, files, {}).load_parts(backend, {}));
    std::optional<Shares> shares;
    try {
      shares.emplace(backend, files, count);
    } catch (const Error& error) {
      // Matrices of tiny models may have too few parts that a format can store.
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find("linear '"), std::string::npos) << error.what();
      continue;
    }
    ++cut;
    whole.visit([&](const std::string& name, const Linear& linear) {
      SCOPED_TRACE(name);
      expect_same_weights(linear, shares->of(linear));
    });
  }
  EXPECT_GE(cut, 1);
}

INSTANTIATE_TEST_SUITE_P(Goldens, LoadedShares,
                         testing::ValuesIn(sampled_golden_models({"archs-tiny", "hf-tiny",
                                                                  "exl2-gptq"})),
                         [](const auto& info) { return case_name(info.param); });

// Products that are put together from shares: results side by side, or summed. Each share reads the
// whole input, or its channels of it.
struct Assembler {
  const OpTable* plain = nullptr;
  std::map<const PackedMatrix*, std::vector<Shard>> shards;
};

Assembler& assembler() {
  static Assembler it;
  return it;
}

Tensor gathered(const TensorView& x, const Features& channels) {
  Tensor result = make_host_tensor(DType::kF32, {x.rows(), std::ssize(channels)});
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    for (std::size_t j = 0; j < channels.size(); ++j) {
      result.view().row<float>(t)[j] = x.row<float>(t)[channels[j]];
    }
  }
  return result;
}

// y = x · W + bias of one share.
Tensor product(ExecContext& ctx, const TensorView& x, const Linear& linear) {
  Tensor y = make_host_tensor(DType::kF32, {x.rows(), linear.out()});
  const MatmulOutput output{&linear.weight(), y.view(), linear.bias()};
  assembler().plain->matmul(ctx, {.x = x, .outputs = {&output, 1}});
  return y;
}

void add_share(ExecContext& ctx, const TensorView& x, const Shard& shard, const TensorView& sum) {
  const bool split_in = shard.rule == ShardRule::kSplitIn;
  const Tensor own_x = split_in ? gathered(x, shard.features) : Tensor();
  const Tensor y = product(ctx, split_in ? own_x.view() : x, *shard.linear);
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    for (std::int64_t c = 0; c < shard.linear->out(); ++c) {
      const std::int64_t column =
          shard.rule == ShardRule::kSplitOut ? shard.features[static_cast<std::size_t>(c)] : c;
      sum.row<float>(t)[column] += y.view().row<float>(t)[c];
    }
  }
}

// multiplier · (x · W) + bias, where the multiplier of these models is 1.
void matmul_of_shares(ExecContext& ctx, const MatmulArgs& args) {
  EXPECT_EQ(args.epilogue.multiplier, 1.0f);
  for (const MatmulOutput& output : args.outputs) {
    const std::vector<Shard>& shards = assembler().shards.at(output.weight);
    const Tensor sum = make_host_tensor(DType::kF32, output.out.shape);
    std::fill_n(sum.view().as<float>(), sum.view().shape.elements(), 0.0f);
    const bool replicated = shards[0].rule == ShardRule::kReplicate;
    for (const Shard& shard : shards) {
      add_share(ctx, args.x, shard, sum.view());
      if (replicated) break;
    }
    for (std::int64_t t = 0; t < args.x.rows(); ++t) {
      float* out = output.out.row<float>(t);
      const float* from = sum.view().row<float>(t);
      for (std::int64_t c = 0; c < output.out.columns(); ++c) {
        out[c] = args.epilogue.accumulate ? out[c] + from[c] : from[c];
      }
    }
  }
}

class SharedProducts : public testing::TestWithParam<std::string> {};

TEST_P(SharedProducts, GiveTheSameLogits) {
  const ModelFiles files = open_model_folder(model_folder(GetParam()));
  const int most = GetParam().starts_with("hf-tiny") ? 3 : 2;
  for (int count = 2; count <= most; ++count) {
    SCOPED_TRACE(count);
    auto backend = std::make_unique<RefBackend>(2);
    const Shares shares(*backend, files, count);
    GoldenRun run(std::move(backend), files, CacheType::kF32);
    const Features ids = some_ids(30, run.model().vocab());
    const std::vector<float> whole = run.logits({ids})[0];
    assembler() = {&run.backend().ops(), {}};
    run.model().visit([&](const std::string&, const Linear& linear) {
      assembler().shards[&linear.weight()] = shares.of(linear);
    });
    OpTable ops = run.backend().ops();
    ops.matmul = matmul_of_shares;
    run.use(ops);
    const std::vector<float> together = run.logits({ids})[0];
    // Sums in float, in another order.
    EXPECT_LE(largest_difference(together, whole), 1e-4 * std::max(1.0, deviation(whole)));
    // One share less is not the model.
    assembler().shards.begin()->second.pop_back();
    EXPECT_GT(largest_difference(run.logits({ids})[0], whole), 1e-2 * deviation(whole));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SharedProducts,
                         testing::Values("hf-tiny/llama", "hf-tiny/gpt2", "hf-tiny/phi3",
                                         "exl2-gptq/exl2-4bit", "exl2-gptq/exl2-all-widths",
                                         "exl2-gptq/gptq-4bit-g128",
                                         "exl2-gptq/gptq-4bit-g32-actorder"),
                         [](const auto& info) { return case_name(info.param); });

// The features that a share holds of the linears of each block.
std::map<std::int32_t, std::map<Role, Features>> cuts_of(const LoadPlan& plan) {
  std::map<std::int32_t, std::map<Role, Features>> blocks;
  for (const LoadTask& task : plan.tasks) {
    if (const auto* work = std::get_if<MatrixWork>(&task.work)) {
      blocks[task.target.block][task.target.role] = work->cut.features;
    }
  }
  return blocks;
}

LoadOptions share_options(Share share) {
  LoadOptions options;
  options.share = share;
  return options;
}

// What gate and up of a share compute, its down reads, channel for channel.
TEST(SharePlan, FeedForwardsMatch) {
  RefBackend backend(1);
  const ModelLoader loader(backend, open_model_folder(model_folder("exl2-gptq/exl2-5-3")),
                           share_options({1, 2}));
  const auto blocks = cuts_of(loader.load_plan());
  int compared = 0;
  for (const auto& [block, cuts] : blocks) {
    if (block < 0) continue;
    EXPECT_EQ(cuts.at(Role::kGate), cuts.at(Role::kDown));
    EXPECT_EQ(cuts.at(Role::kUp), cuts.at(Role::kDown));
    // The file's order of importance: a run of channels would be refused.
    EXPECT_FALSE(std::is_sorted(cuts.at(Role::kDown).begin(), cuts.at(Role::kDown).end()));
    ++compared;
  }
  EXPECT_GE(compared, 2);
  EXPECT_TRUE(loader.adapter_sites().all().empty());
}

// The second halves of ranges of these widths, one after the other.
Features second_halves(const std::vector<std::int32_t>& widths) {
  Features features;
  std::int32_t first = 0;
  for (const std::int32_t width : widths) {
    for (std::int32_t i = width / 2; i < width; ++i) features.push_back(first + i);
    first += width;
  }
  return features;
}

TEST(SharePlan, FusedMatricesAreCutPartByPart) {
  RefBackend backend(1);
  const ModelLoader loader(backend, open_model_folder(model_folder("hf-tiny/phi3")),
                           share_options({1, 2}));
  const BlockSpec& spec = loader.spec().blocks[0];
  const auto q = static_cast<std::int32_t>(spec.attention->heads * spec.attention->head_dim);
  const auto kv = static_cast<std::int32_t>(spec.attention->kv_heads * spec.attention->head_dim);
  const auto hidden = static_cast<std::int32_t>(spec.feed_forward->intermediate);
  const auto cuts = cuts_of(loader.load_plan()).at(0);
  EXPECT_EQ(cuts.at(Role::kQkv), second_halves({q, kv, kv}));
  EXPECT_EQ(cuts.at(Role::kGateUp), second_halves({hidden, hidden}));
}

}  // namespace
}  // namespace bl::test
