// Folds on models of every architecture.

#include "convert/weight_folds.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <ostream>

#include "../model/golden.h"
#include "backend/registry.h"
#include "model/whole_sequences.h"
#include "random_rows.h"

namespace bl::test {
namespace {

// Logits of every position of two prompts.
std::vector<float> logits_of(Backend& backend, ModelLoader& loader) {
  const std::unique_ptr<Model> model = loader.load();
  const auto ids = static_cast<int>(std::min<std::int64_t>(loader.spec().vocab, 96));
  WholeSequences whole = pack_whole(random_rows(2, 24, ids).rows);
  const auto tokens = std::ssize(whole.batch.ids);
  for (std::int64_t i = 0; i < tokens; ++i) {
    whole.batch.logit_rows.push_back(static_cast<std::int32_t>(i));
  }
  const auto layouts = model->kv_layouts({CacheType::kF32});
  Arena scratch(
      backend.allocate(model->work_bytes(tokens, tokens) + block_kv_bytes(layouts, whole.pages)));
  const auto layers = take_block_kv(scratch, layouts, whole.pages);
  ExecContext ctx = backend.context(scratch);
  const TensorView logits = model->forward(ctx, whole.batch, layers);
  const float* values = logits.as<const float>();
  return {values, values + logits.shape.elements()};
}

// The root of the mean square of what b differs by, relative to the deviation of a.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double by = static_cast<double>(a[i]) - b[i];
    sum += by * by;
  }
  return std::sqrt(sum / static_cast<double>(a.size())) / deviation(a);
}

// What conversion opens a model with.
LoadOptions as_converted() {
  LoadOptions options;
  options.separate_linears = true;
  return options;
}

class GoldenFolds : public testing::TestWithParam<std::string> {
 protected:
  ModelLoader loader() const { return {*backend_, files_, as_converted()}; }
  FoldSet allowed(const ModelLoader& plain) const {
    FoldSet kinds;
    for (const FoldKind kind : kFoldKinds) {
      if (fold_refusal(plain, kind).empty()) kinds.insert(kind);
    }
    return kinds;
  }

  const std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  const ModelFiles files_ = open_model_folder(model_folder(GetParam()));
};

// Whatever an architecture allows leaves what its model computes as it is, but for what binary16
// loses of a rotated embedding.
TEST_P(GoldenFolds, LeaveTheModelAsItIs) {
  ModelLoader plain = loader();
  const FoldSet kinds = allowed(plain);
  if (kinds.empty()) return;
  // Only the stream's rotation changes the embedding.
  ModelFolds exact;
  if (kinds.contains(FoldKind::kValues)) exact = make_folds(files_, plain, {FoldKind::kValues});
  const ModelFolds all = make_folds(files_, plain, kinds);
  const std::vector<float> base = logits_of(*backend_, plain);
  const auto difference = [&](const ModelFolds& folds) {
    ModelLoader other = loader();
    other.fold(folds);
    return relative_difference(base, logits_of(*backend_, other));
  };
  EXPECT_LT(difference(exact), 1e-5);
  EXPECT_LT(difference(all), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Model, GoldenFolds,
                         testing::ValuesIn(sampled_golden_models({"hf-tiny", "archs-tiny"})),
                         [](const auto& info) { return case_name(info.param); });

// A kind of model, and what it allows.
struct Allowed {
  const char* model;
  const char* folds;
  friend void PrintTo(const Allowed& one, std::ostream* out) { *out << one.model; }
};

class AllowedFolds : public testing::TestWithParam<Allowed> {};

TEST_P(AllowedFolds, FollowFromTheLayers) {
  const auto backend = open_backend("cpu", {.threads = 2});
  const ModelLoader loader(*backend, open_model_folder(model_folder(GetParam().model)),
                           as_converted());
  FoldSet kinds;
  for (const FoldKind kind : kFoldKinds) {
    const std::string refusal = fold_refusal(loader, kind);
    if (refusal.empty()) kinds.insert(kind);
  }
  EXPECT_EQ(name_of(kinds), GetParam().folds);
}

INSTANTIATE_TEST_SUITE_P(
    Model, AllowedFolds,
    testing::Values(Allowed{"hf-tiny/llama", "residual,values"},
                    Allowed{"hf-tiny/llama-attention-bias", "residual,values"},
                    Allowed{"hf-tiny/qwen2-moe", "residual,values"},
                    Allowed{"hf-tiny/gemma", "residual,values"},  // norms of 1 + weight
                    Allowed{"hf-tiny/phi3", "residual,values"},   // q, k and v in one matrix
                    Allowed{"archs-tiny/olmoe", "residual"},      // clipped values
                    Allowed{"hf-tiny/gemma2", "values"},          // norms behind layers
                    Allowed{"hf-tiny/olmo2", "values"},           // norms behind layers only
                    Allowed{"hf-tiny/cohere", "values"},          // layer norms
                    Allowed{"archs-tiny/nanochat", "values"},     // a norm behind the embedding
                    Allowed{"archs-tiny/gpt-neox", "values"}),    // layer norms with biases
    [](const auto& info) { return case_name(info.param.model); });

TEST(FoldNames, AreReadBack) {
  for (const char* names : {"none", "residual", "values", "residual,values"}) {
    ASSERT_TRUE(folds_named(names)) << names;
    EXPECT_EQ(name_of(*folds_named(names)), names);
  }
  for (const char* names : {"", "auto", "residual,", ",values", "residual values", "none,values"}) {
    EXPECT_FALSE(folds_named(names)) << names;
  }
}

// The matrix of a rotation, row by row: Hadamard's on the largest power of two that divides the
// run, Hartley's across such stretches.
float rotation_element(std::int64_t run, std::int64_t i, std::int64_t k) {
  const std::int64_t stretch = run & -run, stretches = run / stretch;
  const auto ones = std::popcount(static_cast<std::uint64_t>((i % stretch) & (k % stretch)));
  const double angle = 2.0 * std::numbers::pi * static_cast<double>((i / stretch) * (k / stretch)) /
                       static_cast<double>(stretches);
  const double value = (std::cos(angle) + std::sin(angle)) * (ones % 2 == 0 ? 1.0 : -1.0);
  return static_cast<float>(value / std::sqrt(static_cast<double>(run)));
}

TEST(ChannelFold, IsItsMatrix) {
  for (const std::int64_t run : {1, 2, 8, 9, 12, 80}) {
    const std::int64_t channels = 2 * run;
    const Tensor rows = make_host_tensor(DType::kF32, {channels, channels});
    ChannelFold fold{{}, run};
    for (std::int64_t r = 0; r < channels; ++r) {
      fold.factors.push_back(1.0f + static_cast<float>(r % 5));
      for (std::int64_t c = 0; c < channels; ++c) {
        rows.view().row<float>(r)[c] = r == c ? 1.0f : 0.0f;
      }
    }
    fold_columns(rows.view(), fold);
    for (std::int64_t r = 0; r < channels; ++r) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const float rotated = r / run == c / run ? rotation_element(run, c % run, r % run) : 0.0f;
        const float wanted = rotated * fold.factors[static_cast<std::size_t>(r)];
        EXPECT_NEAR(rows.view().row<float>(r)[c], wanted, 1e-5) << run << " " << r << " " << c;
      }
    }
  }
}

TEST(StreamRotation, TurnsBack) {
  const Tensor states = make_host_tensor(DType::kF32, {3, 576});
  std::vector<float> before;
  for (std::int64_t i = 0; i < 3 * 576; ++i) {
    before.push_back(static_cast<float>(i * 37 % 101) - 50.0f);
    states.view().as<float>()[i] = before.back();
  }
  rotate_stream(states.view(), Turn::kForth);
  EXPECT_GT(std::abs(states.view().as<float>()[5] - before[5]), 1e-3);
  rotate_stream(states.view(), Turn::kBack);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(states.view().as<float>()[i], before[i], 1e-3);
  }
}

}  // namespace
}  // namespace bl::test
