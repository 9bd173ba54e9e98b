// A model is what its parts are, however they are loaded: in any order of the tasks, block by
// block, or in ranges of blocks on several backends.

#include "model/load_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/ref/ref_backend.h"
#include "backend/registry.h"
#include "base/error.h"
#include "cache/kv_cache.h"
#include "cache/page_table.h"
#include "model/golden.h"
#include "model/kept_run.h"
#include "model/load_run.h"

namespace bl::test {
namespace {

using Ids = std::vector<std::int32_t>;

std::unique_ptr<Backend> open_host(const std::string& name) {
  return open_backend(name, {.threads = 2});
}

Tensor floats(std::int64_t rows, std::int64_t columns) {
  return make_host_tensor(DType::kF32, {rows, columns});
}

// One forward over a whole text, without Model: embedding, blocks and head may be on different
// backends, whose only link is the residual stream on the host.
class ForwardInParts {
 public:
  ForwardInParts(const ModelSpec& spec, Ids ids, std::size_t work_bytes)
      : spec_(spec),
        ids_(std::move(ids)),
        x_(floats(tokens(), spec.hidden)),
        work_bytes_(work_bytes) {
    positions_.resize(ids_.size());
    std::iota(positions_.begin(), positions_.end(), 0);
  }

  void embed(Backend& on, const Embedding& embedding) {
    Arena scratch(on.allocate(work_bytes_));
    ExecContext ctx = on.context(scratch);
    embedding.forward(ctx, ids_.data(), positions_.data(), x_.view());
  }

  void run(Backend& on, std::size_t layer, const Block& block) {
    Arena scratch(on.allocate(work_bytes_));
    ExecContext ctx = on.context(scratch);
    const BlockSpec& spec = spec_.blocks[layer];
    const KvLayout layout{.type = CacheType::kF32,
                          .kv_heads = spec.attention ? spec.attention->kv_heads : 1,
                          .k_dim = spec.attention ? spec.attention->head_dim : 32,
                          .v_dim = spec.attention ? spec.attention->head_dim : 32};
    KvCache cache(on, {&layout, 1}, KvCache::pages_for(tokens()));
    PageTable table(cache.pool());
    BL_CHECK(table.reserve(tokens()));
    std::vector<std::int64_t> slots;
    for (const std::int32_t position : positions_) slots.push_back(table.slot(position));
    const RopeBank bank(on, spec_.ropes);
    const auto count = static_cast<std::int32_t>(tokens());
    const RopeBank::Sequence sequence{count, 0, count};
    const SequenceSpan span{0, count, 0, table.pages().data()};
    const std::vector<StepInputs::RopeRows> ropes = bank.prepare(ctx, {&sequence, 1});
    StepInputs step;
    step.tokens = tokens();
    step.positions = positions_.data();
    step.slots = slots.data();
    step.sequences = {&span, 1};
    step.ropes = ropes;
    step.attention = on.plan_attention(ctx, step.sequences);
    step.kv = &cache.layers()[0];
    ResidualStream stream(x_.view());
    block.forward(ctx, step, stream);
    EXPECT_EQ(stream.whole(ctx).data, x_.view().data);
  }

  std::vector<float> logits(Backend& on, const Model::Parts& parts) {
    Arena scratch(on.allocate(work_bytes_));
    ExecContext ctx = on.context(scratch);
    if (parts.final_norm.present()) parts.final_norm.forward(ctx, x_.view(), x_.view());
    const Tensor logits = floats(tokens(), spec_.vocab);
    const LinearOutput output{&parts.head, logits.view()};
    apply_linears(ctx, x_.view(), {&output, 1}, spec_.head_multiplier);
    if (spec_.head_softcap > 0.0f) {
      on.ops().scale(ctx, {.x = logits.view(), .softcap = spec_.head_softcap});
    }
    const float* first = logits.view().as<float>();
    return {first, first + tokens() * spec_.vocab};
  }

 private:
  std::int64_t tokens() const { return std::ssize(ids_); }

  const ModelSpec& spec_;
  Ids ids_;
  Ids positions_;
  Tensor x_;
  std::size_t work_bytes_;
};

class LoadedInParts : public testing::TestWithParam<std::string> {
 protected:
  ModelFiles files() const { return open_model_folder(model_folder(GetParam())); }
  static constexpr std::int64_t kTokens = 40;
  static Ids text(const ModelSpec& spec) { return some_ids(kTokens, spec.vocab); }
  std::vector<float> whole_logits(const std::string& backend) const {
    GoldenRun run(open_host(backend), files(), CacheType::kF32);
    return run.logits({text(run.model().spec())})[0];
  }
};

class LoadedInRanges : public LoadedInParts {};

std::size_t work_bytes(const ModelLoader& loader) {
  return loader.plan({.context = 40, .step_tokens = 40, .logit_rows = 40}).work;
}

// Each block is in memory only while it runs, in that of a backend of its own.
TEST_P(LoadedInParts, BlockByBlock) {
  for (const char* name : {"ref", "cpu"}) {
    SCOPED_TRACE(name);
    const auto home = open_host(name);
    ModelLoader loader(*home, files(), {});
    const Model::Parts ends = loader.load_parts(*home, {0, 0});
    const ModelSpec& spec = loader.spec();
    ForwardInParts forward(spec, text(spec), work_bytes(loader));
    forward.embed(*home, ends.embedding);
    for (const std::int32_t layer : spec.order) {
      const auto own = open_host(name);
      const Block block = loader.load_block(*own, static_cast<std::size_t>(layer));
      forward.run(*own, static_cast<std::size_t>(layer), block);
    }
    EXPECT_EQ(forward.logits(*home, ends), whole_logits(name));
  }
}

// The first device has the embedding and a block, the second all else.
TEST_P(LoadedInRanges, OnTwoBackends) {
  const auto first = open_host("cpu");
  const auto second = open_host("cpu");
  ModelLoader loader(*first, files(), {});
  const ModelSpec& spec = loader.spec();
  const Model::Parts front = loader.load_parts(*first, {.end_block = 1, .back = false});
  const Model::Parts back = loader.load_parts(*second, {.first_block = 1, .front = false});
  EXPECT_TRUE(front.head.empty());
  EXPECT_EQ(back.embedding.bytes(), 0u);
  ForwardInParts forward(spec, text(spec), work_bytes(loader));
  forward.embed(*first, front.embedding);
  for (const std::int32_t number : spec.order) {
    const auto layer = static_cast<std::size_t>(number);
    forward.run(layer < 1 ? *first : *second, layer, (layer < 1 ? front : back).blocks[layer]);
  }
  EXPECT_EQ(forward.logits(*second, back), whole_logits("cpu"));
}

TEST_P(LoadedInParts, InAnyOrderOfTasks) {
  for (const char* name : {"ref", "cpu"}) {
    SCOPED_TRACE(name);
    const auto backend = open_host(name);
    const ModelFiles model = files();
    const ModelLoader loader(*backend, model, {});
    const ModelSpec& spec = loader.spec();
    LoadPlan plan = loader.load_plan();
    Ids tasks = plan.ids();
    std::mt19937 random(11);
    std::shuffle(tasks.begin(), tasks.end(), random);
    const RenamedSource source(*model.source, CheckpointNames(*spec.arch));
    LoadedWeights loaded;
    loaded.blocks.resize(spec.blocks.size());
    LoadRun(LoadRun::Args{*backend, source, plan, true}, loaded).run(tasks);
    const Model shuffled(*backend, make_parts(*backend, spec, plan, {}, std::move(loaded)));
    Ids positions(kTokens);
    std::iota(positions.begin(), positions.end(), 0);
    const KeptText prompt{.ids = text(spec), .wanted = positions};
    EXPECT_EQ(run_kept(*backend, shuffled, CacheType::kF32, {prompt}, WantedRows::kAll).logits,
              whole_logits(name));
  }
}

// Every task is of one block, or before or behind the blocks, and counted once.
TEST_P(LoadedInRanges, AddUpToTheWhole) {
  RefBackend backend(1);
  const ModelLoader loader(backend, files(), {});
  const LoadPlan& plan = loader.load_plan();
  std::vector<LoadRange> ranges{{0, 0, true, false}, {0, 0, false, true}};
  for (std::int32_t i = 0; i < std::ssize(loader.spec().blocks); ++i) {
    ranges.push_back(LoadRange::block(i));
  }
  std::vector<int> seen(plan.tasks.size(), 0);
  LoadTotals sum;
  for (const LoadRange& range : ranges) {
    const LoadTotals part = plan.totals(range);
    sum.stored += part.stored;
    sum.packed += part.packed;
    sum.on_host += part.on_host;
    for (const std::int32_t id : plan.ids(range)) ++seen[static_cast<std::size_t>(id)];
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  EXPECT_EQ(sum.stored, loader.weights().stored);
  EXPECT_EQ(sum.packed, loader.weights().packed);
  EXPECT_EQ(sum.on_host, loader.weights().on_host);
}

INSTANTIATE_TEST_SUITE_P(Goldens, LoadedInParts,
                         testing::ValuesIn(sampled_golden_models({"archs-tiny", "hf-tiny",
                                                                  "exl2-gptq"})),
                         [](const auto& info) { return case_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Goldens, LoadedInRanges,
                         testing::ValuesIn(sampled_golden_models({"hf-tiny", "exl2-gptq"})),
                         [](const auto& info) { return case_name(info.param); });

// Linears are numbered as they are planned, and adapters know them by these numbers.
TEST(LoadPlan, LinearsHaveTheNumbersOfTheirSites) {
  const auto backend = open_backend("ref", {});
  ModelLoader loader(*backend, open_model_folder(model_folder("hf-tiny/llama")), {});
  const LoadPlan& plan = loader.load_plan();
  ASSERT_EQ(std::ssize(plan.linears), plan.sites.linears());
  for (std::int32_t i = 0; i < plan.sites.linears(); ++i) {
    const LoadTask& task =
        plan.tasks[static_cast<std::size_t>(plan.linears[static_cast<std::size_t>(i)])];
    EXPECT_EQ(task.linear, i);
    EXPECT_EQ(task.tensors, std::vector<std::string>{plan.sites.origin(i).module + ".weight"});
  }
  const AdapterSite* down = plan.sites.find("model.layers.1.mlp.down_proj");
  ASSERT_NE(down, nullptr);
  Model model(*backend, loader.load_parts(*backend, {}));
  bool found = false;
  model.visit([&](const std::string& name, const Linear& linear) {
    if (name != "blocks.1.down_proj") return;
    EXPECT_EQ(linear.id(), down->parts.at(0).linear);
    found = true;
  });
  EXPECT_TRUE(found);
}

// Only load() gives up what the plan holds.
TEST(LoadPlan, PartsMayBeLoadedAgain) {
  const auto backend = open_host("cpu");
  ModelLoader loader(*backend, open_model_folder(model_folder("exl2-gptq/gptq-4bit-g128")), {});
  std::vector<std::size_t> bytes;
  for (int i = 0; i < 2; ++i) {
    Block block = loader.load_block(*backend, 1);
    std::size_t sum = 0;
    block.visit([&](const std::string&, const Linear& linear) { sum += linear.bytes(); });
    bytes.push_back(sum);
  }
  EXPECT_GT(bytes[0], 0u);
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_NE(loader.load(), nullptr);
}

// The naive backend, as if a matrix were too large for it.
class FailingRef final : public RefBackend {
 public:
  FailingRef() : RefBackend(3) {}
  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix,
                                     const PackOptions& options) override {
    if (name_of(matrix).find("1.mlp.up_proj") != std::string::npos) {
      fail(ErrorCode::kOutOfMemory, "no memory for {}", name_of(matrix));
    }
    return RefBackend::pack(matrix, options);
  }
};

TEST(LoadRun, WhatAThreadThrowsIsThrownByTheLoad) {
  FailingRef backend;
  ModelLoader loader(backend, open_model_folder(model_folder("hf-tiny/llama")), {});
  try {
    loader.load();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("1.mlp.up_proj"), std::string::npos);
  }
}

// Notes which matrices a thread packs alone, and in which order everything else comes.
class WatchedRef final : public RefBackend {
 public:
  explicit WatchedRef(bool at_once) : RefBackend(4), at_once_(at_once) {}
  bool packs_at_once() const override { return at_once_; }
  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix,
                                     const PackOptions& options) override {
    if (options.one_thread) {
      ++alone;
    } else {
      in_order.push_back(name_of(matrix));
    }
    return RefBackend::pack(matrix, options);
  }
  void upload(const TensorView& to, const TensorView& from) override {
    in_order.emplace_back("vector");
    RefBackend::upload(to, from);
  }
  std::atomic<int> alone = 0;
  std::vector<std::string> in_order;

 private:
  bool at_once_;
};

TEST(LoadRun, SmallMatricesArePackedTogetherWhereTheBackendAllowsIt) {
  WatchedRef backend(true);
  ModelLoader loader(backend, open_model_folder(model_folder("hf-tiny/llama")), {});
  const auto linears = static_cast<int>(loader.load_plan().linears.size());
  const auto model = loader.load();
  EXPECT_EQ(backend.alone, linears);
}

TEST(LoadRun, OtherBackendsGetTheOrderOfThePlan) {
  WatchedRef backend(false);
  ModelLoader loader(backend, open_model_folder(model_folder("hf-tiny/llama")), {});
  std::vector<std::string> planned;
  for (const LoadTask& task : loader.load_plan().tasks) {
    if (std::holds_alternative<NormWork>(task.work)) planned.emplace_back("vector");
    if (task.linear >= 0) planned.push_back(loader.adapter_sites().origin(task.linear).module);
  }
  const auto model = loader.load();
  EXPECT_EQ(backend.alone, 0);
  ASSERT_GE(backend.in_order.size(), planned.size());
  backend.in_order.resize(planned.size());  // then come rope tables
  EXPECT_EQ(backend.in_order, planned);
}

}  // namespace
}  // namespace bl::test
