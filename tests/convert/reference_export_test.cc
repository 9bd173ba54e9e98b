// Our measurement.json as ExLlamaV2's converter reads it.

#include "convert/reference_export.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../model/golden.h"
#include "backend/registry.h"
#include "base/file.h"
#include "convert/converter.h"
#include "convert/measure_model.h"
#include "convert/reference_options.h"
#include "odd_model.h"
#include "random_rows.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

// total_bits of SmolLM2-135M's modules in the measurement.json that ExLlamaV2 0.3.2 wrote.
constexpr std::int64_t kAttentionBits[] = {
    1998528, 2023104, 2118144, 2477376, 2956224, 2947200, 3644352, 3647616, 3677040, 3726720,
    3831936, 3775344, 3866304, 3923328, 4811712, 4808064, 5413824, 5717376, 7183296};
constexpr std::int64_t kMlpBits[] = {6169152,  6365760,  7007328,  7836768,  9159600,  9097152,
                                     9756816,  11101728, 11259840, 11758512, 11696064, 14357424,
                                     14294976, 16219056, 17182752, 18657312, 21409824};

// One block with the shapes of that model.
ModelFiles one_block(const Json& changes = Json::object()) {
  Json config = {{"hidden_size", 576},       {"intermediate_size", 1536}, {"num_hidden_layers", 1},
                 {"num_attention_heads", 9}, {"num_key_value_heads", 3},  {"head_dim", 64}};
  config.update(changes);
  return OddModel(config).files();
}

// A loss of `bits` and `size` for each run of 32 slots, the same in all linears.
double loss_of(int bits, std::int32_t size) {
  return std::exp2(-2.0 * bits) * (1.0 + size / 512.0);
}

class ReferenceExport : public testing::Test {
 protected:
  explicit ReferenceExport(const ModelFiles& files = one_block())
      : loader_(*backend_, files, separating()) {
    for (const LoadTask* task : quantized_linears(loader_, LoadRange::block(0))) {
      const auto& work = std::get<MatrixWork>(task->work);
      LinearMeasurement& linear = measurement_.linears.emplace_back();
      linear = {.key = task->key, .in = work.in, .out = work.out, .sensitivity = 1e-3};
      for (const int bits : kMeasuredWidths) {
        for (const std::int32_t size : {32, 64, 128}) {
          const auto runs = static_cast<std::size_t>(work.in / 32);
          linear.curves.push_back({bits, size, std::vector<double>(runs, loss_of(bits, size))});
        }
      }
      linears_.push_back({.key = task->key,
                          .in = work.in,
                          .out = work.out,
                          .reference = reference_name(task->target)});
    }
  }

  static LoadOptions separating() {
    LoadOptions options;
    options.separate_linears = true;
    return options;
  }

  const std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  ModelLoader loader_;
  ErrorMeasurement measurement_;
  std::vector<PlannedMatrix> linears_;
};

TEST_F(ReferenceExport, OptionsAndBitsAreThoseOfTheReference) {
  const Json json = reference_measurement_json(measurement_, loader_);
  EXPECT_EQ(json.at("last_module_idx"), 4);
  const Json& modules = json.at("measurement");
  ASSERT_EQ(modules.size(), 2u);
  const Json& attention = modules.at("model.layers.0.self_attn");
  ASSERT_EQ(attention.size(), std::size(kAttentionBits));
  for (std::size_t i = 0; i < attention.size(); ++i) {
    EXPECT_EQ(attention[i].at("total_bits"), kAttentionBits[i]) << i;
  }
  const Json& mlp = modules.at("model.layers.0.mlp");
  ASSERT_EQ(mlp.size(), std::size(kMlpBits));
  for (std::size_t i = 0; i < mlp.size(); ++i) {
    EXPECT_EQ(mlp[i].at("total_bits"), kMlpBits[i]) << i;
  }
  const Json wanted = {{"group_size", {{"8", 32}, {"4", 128}, {"3", 128}}},
                       {"bits", {8, 4, 3}},
                       {"bits_prop", {0.05, 0.1, 0.85}},
                       {"scale_bits", 4}};
  EXPECT_EQ(mlp[4].at("down_proj"), wanted);
}

// A tenth of the 576 slots of each linear is one group of 128 with 4 bits; the rest has 3.
TEST_F(ReferenceExport, AccuracyIsThePredictedDivergence) {
  const Json json = reference_measurement_json(measurement_, loader_);
  const Json& option = json.at("measurement").at("model.layers.0.self_attn").at(4);
  const double kl = 4 * 1e-3 * (4 * loss_of(4, 128) + 14 * loss_of(3, 128));
  EXPECT_NEAR(option.at("accuracy").get<double>(), 1.0 - std::sqrt(kl), 1e-9);
}

TEST_F(ReferenceExport, OurReaderOfTheReferenceTakesIt) {
  const Json json = reference_measurement_json(measurement_, loader_);
  ASSERT_TRUE(is_reference_measurement(json));
  const ReferenceMeasurement read = reference_measurement_from_json(json, linears_, "m.json");
  ASSERT_EQ(read.modules.size(), 2u);
  const auto& mlp = read.modules[0].size() == 17 ? read.modules[0] : read.modules[1];
  for (std::size_t i = 0; i < mlp.size(); ++i) EXPECT_EQ(mlp[i].bits, kMlpBits[i]);
}

class BiasedExport : public ReferenceExport {
 protected:
  BiasedExport() : ReferenceExport(one_block(Json::object({{"attention_bias", true}}))) {}
};

TEST_F(BiasedExport, BiasesCount) {
  const Json json = reference_measurement_json(measurement_, loader_);
  EXPECT_EQ(json.at("measurement").at("model.layers.0.self_attn").at(0).at("total_bits"),
            kAttentionBits[0] + 16 * (576 + 192 + 192 + 576));
}

// Whole measurements of models with experts, parallel blocks, fused linears: one file that both
// readers take.
class MeasurementFiles : public testing::TestWithParam<const char*> {
 protected:
  // The bits per weight that a conversion with this measurement plans.
  double planned_bits(const fs::path& measurement, const char* name) {
    const ConvertArgs args{.job = job(name), .measurement = measurement, .measure_rows = 1};
    Converter converter(args);
    const BitPlan& plan = converter.plan(6.0);
    EXPECT_EQ(plan.linears.size(), converter.linears().size() - 1);
    return plan.bits_per_weight;
  }

  ConversionJob job(const char* name) {
    return {.backend = *backend_,
            .files = files_,
            .calibration = rows_,
            .work = root_ / name,
            .source = GetParam()};
  }

  const std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  const ModelFiles files_ = open_model_folder(model_folder(GetParam()));
  const Calibration rows_ = random_rows(1, 48, 96);
  const fs::path root_ = scratch_dir(("measurement-" + case_name(GetParam())).c_str());
};

TEST_P(MeasurementFiles, ServeBothReaders) {
  const ConvertArgs args{.job = job("own"), .measure_rows = 1};
  Converter converter(args);
  converter.measure();
  Json json = converter.measurement_json();
  EXPECT_FALSE(is_reference_measurement(json));
  const fs::path ours = root_ / "ours.json", theirs = root_ / "theirs.json";
  write_file_atomically(ours, json_text(json));
  EXPECT_EQ(planned_bits(ours, "again"), converter.plan(6.0).bits_per_weight);
  for (const char* key : {"format", "tokens", "sensitivity_tokens", "linears"}) json.erase(key);
  write_file_atomically(theirs, json_text(json));
  EXPECT_GT(planned_bits(theirs, "theirs"), 5.0);
  EXPECT_LE(planned_bits(theirs, "more"), 6.0);
}

INSTANTIATE_TEST_SUITE_P(Model, MeasurementFiles,
                         testing::Values("hf-tiny/phi3", "hf-tiny/mixtral", "hf-tiny/qwen3-moe",
                                         "hf-tiny/cohere", "hf-tiny/dbrx", "hf-tiny/gpt2",
                                         "archs-tiny/internlm2"),
                         [](const auto& info) { return case_name(info.param); });

// A model with linears that the reference does not know has our keys alone.
TEST(MeasurementFile, HasOnlyOurKeysWhereTheReferenceKnowsNoBlock) {
  const auto backend = open_backend("cpu", {.threads = 2});
  for (const char* name : {"hf-tiny/qwen2-moe", "archs-tiny/afmoe", "archs-tiny/deci-lm"}) {
    LoadOptions options;
    options.separate_linears = true;
    const ModelLoader loader(*backend, open_model_folder(model_folder(name)), options);
    EXPECT_TRUE(reference_measurement_json({}, loader).empty()) << name;
  }
}

}  // namespace
}  // namespace bl::test
