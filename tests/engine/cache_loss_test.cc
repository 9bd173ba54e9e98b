#include "engine/cache_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "engine/step_runner.h"
#include "format/safetensors_file.h"
#include "format/safetensors_writer.h"
#include "tensor/float16.h"
#include "tiny_model.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTypes{CacheType::kQ8, CacheType::kQ6, CacheType::kQ4};

// Binary16 values by name.
using Halves = std::map<std::string, std::vector<std::uint16_t>>;

// The tiny model with biases, all 0 but for one channel of every key: the last one of the first
// half of a head, which the rotary encoding turns least.
fs::path biased_model(float bias) {
  const fs::path folder = make_tiny_model("cache-loss", "\"attention_bias\": true,");
  const fs::path file = folder / "model.safetensors";
  std::vector<TensorPlan> plans;
  Halves values;
  {
    const SafetensorsFile source(file);
    for (const std::string& name : source.names()) {
      const HostArray array = source.read(name);
      const auto* data = array.view.as<std::uint16_t>();
      plans.push_back(plan_tensor(name, DType::kF16, array.view.shape));
      values[name].assign(data, data + array.view.shape.elements());
    }
  }
  for (const std::string at : {"model.layers.0.self_attn.", "model.layers.1.self_attn."}) {
    for (const auto& [linear, width] : {std::pair("q_proj", 32), std::pair("k_proj", 16),
                                        std::pair("v_proj", 16), std::pair("o_proj", 32)}) {
      const std::string name = at + linear + ".bias";
      plans.push_back(plan_tensor(name, DType::kF16, {width}));
      values[name].resize(static_cast<std::size_t>(width));
    }
    for (const std::size_t channel : {3u, 8u + 3u}) {
      values[at + "k_proj.bias"][channel] = float_to_half(bias);
    }
  }
  SafetensorsWriter writer(file, plans, {{"format", "pt"}});
  for (const TensorPlan& plan : writer.tensors()) {
    writer.write(std::as_bytes(std::span(values.at(plan.name))));
  }
  writer.commit();
  return folder;
}

std::unique_ptr<ModelSession> session_of(const fs::path& model, const std::string& backend) {
  SessionOptions options = textless_session(model, backend, 1);
  options.cache = CacheType::kQ4;
  return ModelSession::load(options);
}

std::array<double, 3> scores(const fs::path& model, const std::string& backend) {
  const auto session = session_of(model, backend);
  const std::vector<CacheLoss> losses = measure_cache_loss(*session, kTypes);
  return {losses[0].score, losses[1].score, losses[2].score};
}

TEST(CacheLoss, GrowsWithOutliersAndWithFewerBits) {
  const std::array small = scores(biased_model(0), "cpu");
  EXPECT_GT(small[0], 0);
  EXPECT_GT(small[1], 2 * small[0]);
  EXPECT_GT(small[2], 2 * small[1]);
  const std::array large = scores(biased_model(300), "cpu");
  for (std::size_t i = 0; i < large.size(); ++i) EXPECT_GT(large[i], 10 * small[i]);
}

TEST(CacheLoss, NamesTheLargestKey) {
  const auto session = session_of(biased_model(300), "ref");
  const std::vector<CacheLoss> losses = measure_cache_loss(*session, kTypes);
  EXPECT_NEAR(losses[0].largest_key, 300, 10);
  EXPECT_GE(losses[0].worst_layer, losses[0].score);
}

TEST(CacheLoss, HostBackendsAgree) {
  const fs::path model = biased_model(30);
  const std::array ref = scores(model, "ref");
  const std::array cpu = scores(model, "cpu");
  for (std::size_t i = 0; i < ref.size(); ++i) EXPECT_NEAR(cpu[i], ref[i], 0.01 * ref[i]);
}

TEST(CacheLoss, LeavesTheSessionAsItWas) {
  const fs::path model = biased_model(3);
  const auto logits = [&](ModelSession& session) {
    StepRunner runner(session);
    Sequence sequence = session.new_sequence();
    sequence.ids = {1, 2, 3, 4, 5};
    sequence.reach = 5;
    const StepItem item{.sequence = &sequence, .count = 5, .logits = LogitRows::kLast};
    const StepLogits found = runner.run({&item, 1});
    return std::vector<float>(found.row(0).begin(), found.row(0).end());
  };
  const auto untouched = session_of(model, "cpu");
  const auto probed = session_of(model, "cpu");
  const auto free = probed->cache().pool().free_pages();
  measure_cache_loss(*probed, kTypes);
  EXPECT_EQ(probed->cache().pool().free_pages(), free);
  EXPECT_TRUE(probed->uses_own_ops());
  EXPECT_EQ(logits(*probed), logits(*untouched));
}

// Every architecture, also those that share keys between layers, have windows, or no attention
// bias.
TEST(CacheLoss, IsMeasuredOnEveryArchitecture) {
  for (const fs::path& model : golden_models()) {
    const auto session = session_of(model, "cpu");
    const std::vector<CacheLoss> losses = measure_cache_loss(*session, kTypes);
    EXPECT_GT(losses[2].score, 0) << model;
    EXPECT_TRUE(std::isfinite(losses[2].score)) << model;
    EXPECT_GT(losses[2].score, losses[0].score) << model;
  }
}

TEST(CacheLoss, FloatsAreNotWorthMeasuring) {
  EXPECT_FALSE(may_lose(CacheType::kF32));
  EXPECT_FALSE(may_lose(CacheType::kF16));
  EXPECT_TRUE(may_lose(CacheType::kFp8));
  EXPECT_TRUE(may_lose(CacheType::kQ8));
}

}  // namespace
}  // namespace bl::test
