// What is planned is what is taken: on a backend that counts, with memory of its own.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/ref/ref_backend.h"
#include "model/golden.h"
#include "model/model_loader.h"

namespace bl::test {
namespace {

// The naive backend, as if its memory were not the host's.
class CountingBackend final : public RefBackend {
 public:
  CountingBackend() : RefBackend(1) {}
  bool reads_host_memory() const override { return false; }
  Buffer allocate(std::size_t bytes) override {
    taken += bytes;
    return RefBackend::allocate(bytes);
  }
  Buffer allocate_transfer(std::size_t bytes) override {
    on_host += bytes;
    return RefBackend::allocate_transfer(bytes);
  }
  void reserve_weights(std::size_t bytes) override { reserved = bytes; }
  void finish_weights() override { finished = true; }
  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix,
                                     const PackOptions& options) override {
    std::unique_ptr<PackedMatrix> packed = RefBackend::pack(matrix, options);
    taken += packed->bytes();
    return packed;
  }
  std::unique_ptr<PackedExperts> pack_experts(std::span<const ExpertWeights> experts) override {
    taken += table_bytes(static_cast<std::int64_t>(experts.size()));
    return nullptr;
  }
  std::size_t expert_table_bytes(std::int64_t experts) const override {
    return table_bytes(experts);
  }

  std::size_t taken = 0;
  std::size_t on_host = 0;
  std::size_t reserved = 0;
  bool finished = false;

 private:
  static std::size_t table_bytes(std::int64_t experts) {
    return static_cast<std::size_t>(experts) * 24;
  }
};

LoadOptions load_options(bool embed_host) {
  LoadOptions options;
  options.embed_host = embed_host;
  return options;
}

struct Loaded {
  CountingBackend backend;
  ModelFiles files;
  ModelLoader loader;
  explicit Loaded(const std::string& name, bool embed_host = false)
      : files(open_model_folder(model_folder(name))),
        loader(backend, files, load_options(embed_host)) {}
};

void check_parts(const std::string& name) {
  Loaded loaded(name);
  const LoadPlan& plan = loaded.loader.load_plan();
  const std::size_t ropes = RopeBank::device_bytes(loaded.backend, loaded.loader.spec().ropes);
  const auto check = [&](const LoadRange& range, std::size_t more, auto&& load) {
    CountingBackend backend;
    const auto part = load(backend);
    EXPECT_EQ(backend.taken, plan.totals(range).packed + more);
    EXPECT_EQ(backend.reserved, backend.taken);
    EXPECT_TRUE(backend.finished);
  };
  const LoadRange front{0, 1, true, false};
  check(front, ropes, [&](Backend& on) { return loaded.loader.load_parts(on, front); });
  for (const std::int32_t i : loaded.loader.spec().order) {
    check(LoadRange::block(i), 0,
          [&](Backend& on) { return loaded.loader.load_block(on, static_cast<std::size_t>(i)); });
  }
  EXPECT_EQ(loaded.backend.taken, 0u);
}

void check_share(const std::string& name, Share share) {
  CountingBackend backend;
  LoadOptions options;
  options.share = share;
  ModelLoader loader(backend, open_model_folder(model_folder(name)), options);
  const std::size_t planned = loader.plan({}).weights;
  EXPECT_EQ(backend.taken, 0u) << "planning takes nothing";
  EXPECT_LT(planned, Loaded(name).loader.plan({}).weights);
  const Model::Parts parts = loader.load_parts(backend, {});
  EXPECT_EQ(backend.taken, planned);
  EXPECT_EQ(backend.reserved, planned);
}

class PlanOfModel : public testing::TestWithParam<std::string> {};

TEST_P(PlanOfModel, WeightsTakeWhatWasPlanned) {
  Loaded loaded(GetParam());
  const std::size_t planned = loaded.loader.plan({}).weights;
  EXPECT_EQ(loaded.backend.taken, 0u) << "planning takes nothing";
  const auto model = loaded.loader.load();
  EXPECT_EQ(loaded.backend.taken, planned);
  EXPECT_EQ(loaded.backend.reserved, planned);
  EXPECT_TRUE(loaded.backend.finished);
  EXPECT_EQ(loaded.backend.on_host, 0u);
}

TEST_P(PlanOfModel, TheEmbeddingOnTheHostIsPlannedThere) {
  const std::size_t whole = Loaded(GetParam()).loader.plan({}).weights;
  Loaded loaded(GetParam(), true);
  const MemoryPlan plan = loaded.loader.plan({});
  EXPECT_GT(plan.on_host, 0u);
  EXPECT_EQ(plan.weights + plan.on_host, whole);
  const auto model = loaded.loader.load();
  EXPECT_EQ(loaded.backend.taken, plan.weights);
  EXPECT_EQ(loaded.backend.on_host, plan.on_host);
}

// A range of blocks, each block by itself, and each share of all of them.
TEST_P(PlanOfModel, PartsTakeWhatWasPlanned) {
  check_parts(GetParam());
  for (const int index : {0, 1}) check_share(GetParam(), {index, 2});
}

INSTANTIATE_TEST_SUITE_P(
    All, PlanOfModel,
    testing::ValuesIn(sampled_golden_models({"archs-tiny", "hf-tiny", "exl2-gptq"})),
    [](const testing::TestParamInfo<std::string>& info) { return case_name(info.param); });

}  // namespace
}  // namespace bl::test
