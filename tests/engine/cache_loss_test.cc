#include "engine/cache_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/step_runner.h"
#include "tiny_model.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTypes{CacheType::kQ8, CacheType::kQ6, CacheType::kQ4};

fs::path biased_model(float bias) { return make_biased_model("cache-loss", bias); }

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
