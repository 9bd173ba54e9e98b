// Whole conversions of tiny models to GPTQ.

#include <gtest/gtest.h>

#include <climits>
#include <cstdlib>

#include "../model/golden.h"
#include "backend/registry.h"
#include "base/error.h"
#include "base/file.h"
#include "convert/gptq_converter.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_writer.h"
#include "random_rows.h"
#include "stopping_progress.h"
#include "support/data.h"
#include "support/error_of.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr int kTinyIds = 256;

class GptqConversionTest : public testing::Test {
 protected:
  struct Settings {
    GptqLayout layout = {.bits = 4, .group_size = 32};
    int stop_after = INT_MAX;  // calls of progress; then the conversion is killed
    std::uint64_t shard_bytes = std::uint64_t{1} << 30;
  };

  ConvertReport convert(const std::string& name, const Settings& settings) {
    const auto backend = open_backend("cpu", {.threads = 2});
    const fs::path out = root_ / name;
    fs::create_directories(out);
    int calls = 0;
    const GptqConvertArgs args{.job = {.backend = *backend,
                                       .files = files_,
                                       .calibration = rows_,
                                       .work = root_ / (name + "-job"),
                                       .source = "tiny",
                                       .progress = stopping_progress(settings.stop_after, calls)},
                               .layout = settings.layout};
    GptqConverter converter(args);
    converter.quantize();
    return converter.write(out, settings.shard_bytes);
  }

  std::vector<std::uint16_t> matrix_of(const ModelFiles& files, const std::string& key) const {
    return dequantize_to_half(
        load_weight_matrix(*files.source, key, {.gptq = files.gptq ? &*files.gptq : nullptr}));
  }

  fs::path root_ = scratch_dir("gptq-conversion");
  // With biases, which stay as they are.
  ModelFiles files_ = open_model_folder(unpacked("hf-tiny") / "llama-attention-bias");
  Calibration rows_ = random_rows(4, 64, kTinyIds);
};

TEST_F(GptqConversionTest, WritesAModelThatSaysNearlyTheSame) {
  files_.config["dtype"] = "bfloat16";
  const ConvertReport report = convert("plain", {.layout = {.bits = 8, .group_size = 64}});
  EXPECT_GT(report.bits_per_weight, 8.0);
  EXPECT_LT(report.bits_per_weight, 9.0);
  EXPECT_EQ(report.linears.size(), 2u * 7u);
  EXPECT_EQ(report.quality.block_errors.size(), 2u);
  EXPECT_EQ(report.quality.positions, 2 * 63);  // of the two rows held out
  EXPECT_GT(report.quality.kl, 0.0);
  EXPECT_LT(report.quality.kl, 0.01);
  EXPECT_FALSE(has_prediction(report));
  const ModelFiles converted = open_model_folder(root_ / "plain");
  for (const char* file : {"config.json", "quantize_config.json"}) {
    Json config = read_json_file(root_ / "plain" / file);
    if (config.contains("quantization_config")) config = config["quantization_config"];
    EXPECT_EQ(config["quant_method"], "gptq") << file;
    EXPECT_EQ(config["bits"], 8) << file;
    EXPECT_EQ(config["group_size"], 64) << file;
    EXPECT_EQ(config["checkpoint_format"], "gptq") << file;
    EXPECT_EQ(config["sym"], true) << file;
    EXPECT_EQ(config["desc_act"], false) << file;
  }
  EXPECT_EQ(converted.config.at("dtype"), "float16");
  const auto logits = [](const ModelFiles& files) {
    GoldenRun run("cpu", files, CacheType::kF32);
    return run.logits({random_rows(1, 40, kTinyIds).rows[0]})[0];
  };
  const std::vector<float> base = logits(files_), other = logits(converted);
  double sum = 0.0, power = 0.0;
  for (std::size_t i = 0; i < base.size(); ++i) {
    sum += (base[i] - other[i]) * (base[i] - other[i]);
    power += base[i] * base[i];
  }
  EXPECT_LT(sum, 0.003 * power);
  EXPECT_GT(sum, 0.0);
}

TEST_F(GptqConversionTest, GivesTheSameBytesAfterAKillAtAnyPoint) {
  for (const bool v2 : {false, true}) {
    const GptqLayout layout{
        .bits = 3, .group_size = 32, .symmetric = false, .act_order = true, .v2 = v2};
    const std::string kind = v2 ? "v2" : "v1";
    convert("whole" + kind, {.layout = layout});
    for (int stop = 0; stop < 3; ++stop) {
      const std::string name = "killed" + kind + std::to_string(stop);
      EXPECT_THROW(convert(name, {.layout = layout, .stop_after = stop}), Stopped) << stop;
      EXPECT_FALSE(fs::exists(root_ / name / "model.safetensors"));
      convert(name, {.layout = layout});
      EXPECT_EQ(read_file(root_ / ("whole" + kind) / "model.safetensors"),
                read_file(root_ / name / "model.safetensors"))
          << name;
    }
  }
}

TEST_F(GptqConversionTest, WritesShardsWithAnIndex) {
  convert("one", {});
  convert("shards", {.shard_bytes = 40000});
  EXPECT_TRUE(fs::exists(root_ / "shards" / "model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(root_ / "shards" / "model.safetensors"));
  const char* key = "model.layers.1.mlp.down_proj";
  EXPECT_EQ(matrix_of(open_model_folder(root_ / "one"), key),
            matrix_of(open_model_folder(root_ / "shards"), key));
}

TEST_F(GptqConversionTest, RefusesAnotherJobInItsFolder) {
  convert("job", {});
  const std::string error = error_of(
      [&] { convert("job", {.layout = {.bits = 4, .group_size = 32, .symmetric = false}}); },
      ErrorCode::kInvalidArgument);
  EXPECT_NE(error.find("\"sym\""), std::string::npos) << error;
}

// A reader of the layout that shares nothing with this program, in Python.
TEST_F(GptqConversionTest, AnIndependentReaderDecodesTheSame) {
  const fs::path script = data_dir().parent_path() / "convert" / "compare_gptq.py";
  int number = 0;
  for (const GptqLayout& layout :
       {GptqLayout{.bits = 4, .group_size = 32, .symmetric = false},
        GptqLayout{.bits = 3, .group_size = 64, .symmetric = false, .act_order = true, .v2 = true},
        GptqLayout{.bits = 2, .group_size = -1, .symmetric = true},
        GptqLayout{.bits = 8, .group_size = 32, .symmetric = true, .act_order = true}}) {
    const std::string name = "python" + std::to_string(number++);
    const ConvertReport report = convert(name, {.layout = layout});
    const ModelFiles converted = open_model_folder(root_ / name);
    std::map<std::string, std::vector<std::uint16_t>> decoded;
    std::vector<TensorPlan> plans;
    for (const LinearReport& linear : report.linears) {
      const WeightMatrix matrix =
          load_weight_matrix(*converted.source, linear.key, {.gptq = &*converted.gptq});
      plans.push_back({linear.key, DType::kF16, {in_features(matrix), out_features(matrix)}});
      decoded[linear.key] = dequantize_to_half(matrix);
    }
    const fs::path own = root_ / (name + ".safetensors");
    SafetensorsWriter writer(own, std::move(plans));
    for (const TensorPlan& plan : writer.tensors()) {
      writer.write(std::as_bytes(std::span(decoded.at(plan.name))));
    }
    writer.commit();
    const std::string command = "python3 '" + script.string() + "' '" + (root_ / name).string() +
                                "' '" + own.string() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

}  // namespace
}  // namespace bl::test
