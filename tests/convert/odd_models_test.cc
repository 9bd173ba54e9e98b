// Models with what real ones rarely have: sizes that are no multiples of 32, layers that say
// nothing, damaged weights, experts that nobody chooses.

#include <gtest/gtest.h>

#include <cmath>

#include "../model/golden.h"
#include "backend/registry.h"
#include "base/file.h"
#include "convert/converter.h"
#include "convert/gptq_converter.h"
#include "format/load_weight_matrix.h"
#include "odd_model.h"
#include "random_rows.h"
#include "support/data.h"
#include "support/error_of.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr int kOddIds = OddModel::kVocab;

class OddModels : public testing::Test {
 protected:
  ConvertReport convert(const ModelFiles& files, double bits) {
    const Calibration rows = random_rows(2, 48, kOddIds);
    const ConvertArgs args{.job = job(files, rows), .head_bits = 8, .measure_rows = 1};
    Converter converter(args);
    converter.quantize(bits);
    return converter.write(bits, out_, std::uint64_t{1} << 30);
  }

  ConvertReport convert_to_gptq(const ModelFiles& files) {
    const Calibration rows = random_rows(2, 48, kOddIds);
    const GptqConvertArgs args{.job = job(files, rows), .layout = {.bits = 8, .group_size = 32}};
    GptqConverter converter(args);
    converter.quantize();
    return converter.write(out_, std::uint64_t{1} << 30);
  }

  ConversionJob job(const ModelFiles& files, const Calibration& rows) {
    return {.backend = *backend_,
            .files = files,
            .calibration = rows,
            .work = out_ / "job",
            .restart = true,
            .source = "odd",
            .progress = [this](const std::string&, std::int64_t, std::int64_t) { ++steps_; }};
  }

  // The mean square difference of the result's logits from the original ones, relative to these.
  double error_of_result(const ModelFiles& files) {
    const auto logits = [](const ModelFiles& of) {
      GoldenRun run("cpu", of, CacheType::kF32);
      return run.logits({random_rows(1, 40, kOddIds).rows[0]})[0];
    };
    const std::vector<float> base = logits(files), other = logits(open_model_folder(out_));
    double sum = 0.0, power = 0.0;
    for (std::size_t i = 0; i < base.size(); ++i) {
      sum += std::pow(base[i] - other[i], 2.0);
      power += std::pow(base[i], 2.0);
    }
    return sum / power;
  }

  std::string format_of(const std::string& key) const {
    const ModelFiles files = open_model_folder(out_);
    const LoadHints hints{.gptq = files.gptq ? &*files.gptq : nullptr};
    return std::string(format_name(load_weight_matrix(*files.source, key, hints)));
  }

  const std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  const fs::path out_ = scratch_dir("odd-model");
  int steps_ = 0;  // of progress
};

// Outputs are padded with their biases; what EXL2 cannot hold, inputs of other numbers, stays.
TEST_F(OddModels, OutputsArePaddedAndOtherInputsStayPlain) {
  const ModelFiles files = OddModel({{"intermediate_size", 80},
                                     {"num_attention_heads", 3},
                                     {"num_key_value_heads", 1},
                                     {"attention_bias", true},
                                     {"mlp_bias", true}})
                               .files();
  const ConvertReport report = convert(files, 8.5);
  EXPECT_LT(error_of_result(files), 1e-3);
  for (const char* padded : {"self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj"}) {
    EXPECT_EQ(format_of(std::string("model.layers.1.") + padded), "exl2") << padded;
  }
  for (const char* plain : {"self_attn.o_proj", "mlp.down_proj"}) {
    EXPECT_EQ(format_of(std::string("model.layers.1.") + plain), "fp16") << plain;
  }
  const ModelFiles result = open_model_folder(out_);
  EXPECT_EQ(result.source->find("model.layers.0.mlp.up_proj.bias")->shape, Shape{96});
  EXPECT_EQ(report.linears.size(), 2u * 5u + 1u);
}

// GPTQ pads nothing. Other readers are told what stays plain.
TEST_F(OddModels, GptqLeavesOutputsThatItCannotHold) {
  const ModelFiles files =
      OddModel(Json::object({{"intermediate_size", 80}, {"num_hidden_layers", 1}})).files();
  convert_to_gptq(files);
  EXPECT_LT(error_of_result(files), 1e-3);
  EXPECT_EQ(format_of("model.layers.0.self_attn.o_proj"), "gptq");
  EXPECT_EQ(format_of("model.layers.0.mlp.up_proj"), "fp16");
  const Json wanted = {{"-:^model\\.layers\\.0\\.mlp\\.gate_proj$", Json::object()},
                       {"-:^model\\.layers\\.0\\.mlp\\.up_proj$", Json::object()},
                       {"-:^model\\.layers\\.0\\.mlp\\.down_proj$", Json::object()}};
  EXPECT_EQ(open_model_folder(out_).config.at("quantization_config").at("dynamic"), wanted);
}

TEST_F(OddModels, ExpertsOfOddSizesConvert) {
  const ModelFiles files = OddModel({{"architectures", {"MixtralForCausalLM"}},
                                     {"model_type", "mixtral"},
                                     {"num_local_experts", 4},
                                     {"num_experts_per_tok", 2},
                                     {"intermediate_size", 80}})
                               .files();
  EXPECT_EQ(convert(files, 8.5).linears.size(), 2u * (4u + 4u * 2u) + 1u);
  EXPECT_LT(error_of_result(files), 1e-3);
  EXPECT_EQ(format_of("model.layers.1.block_sparse_moe.experts.3.w3"), "exl2");
  EXPECT_EQ(format_of("model.layers.1.block_sparse_moe.experts.3.w2"), "fp16");
  EXPECT_EQ(convert_to_gptq(files).linears.size(), 2u * 4u);
  EXPECT_LT(error_of_result(files), 1e-3);
}

TEST_F(OddModels, AHiddenSizeThatNothingCanHoldIsRefused) {
  const ModelFiles files = OddModel(Json::object({{"hidden_size", 72}})).files();
  const std::string error = error_of([&] { convert(files, 4.5); }, ErrorCode::kUnsupported);
  EXPECT_NE(error.find("hidden size of the model is 72"), std::string::npos) << error;
  EXPECT_EQ(steps_, 0);
}

// Phi-3 is a Llama whose files fuse q, k and v, and gate and up: the results are the same to the
// byte.
TEST_F(OddModels, FusedFilesMakeTheSameModel) {
  OddModel model(Json::object());
  convert(model.files(), 4.7);
  const std::string separate = read_file(out_ / "output.safetensors");
  for (const std::string layer : {"model.layers.0", "model.layers.1"}) {
    const auto names = [&](const char* at, std::initializer_list<const char*> parts) {
      std::vector<std::string> result;
      for (const char* part : parts) result.push_back(layer + at + part + "_proj.weight");
      return result;
    };
    model.fuse(names(".self_attn.", {"q", "k", "v"}), layer + ".self_attn.qkv_proj.weight");
    model.fuse(names(".mlp.", {"gate", "up"}), layer + ".mlp.gate_up_proj.weight");
  }
  model.set_config("architectures", {"Phi3ForCausalLM"});
  model.set_config("model_type", "phi3");
  convert(model.files(), 4.7);
  EXPECT_TRUE(read_file(out_ / "output.safetensors") == separate);
}

// Weights of zero, outputs of zero, and inputs of zero.
TEST_F(OddModels, DeadLayersConvert) {
  OddModel model(Json::object());
  model.fill("model.layers.0.self_attn.v_proj.weight", 0.0f);
  model.fill("model.layers.1.mlp.down_proj.weight", 0.0f);
  model.fill("model.layers.1.input_layernorm.weight", 0.0f);
  const ModelFiles files = model.files();
  const auto check = [&](const ConvertReport& report, double most) {
    EXPECT_LT(error_of_result(files), most);
    for (const LinearReport& linear : report.linears) {
      EXPECT_TRUE(std::isfinite(linear.relative_error)) << linear.key;
    }
    EXPECT_TRUE(std::isfinite(report.quality.kl));
  };
  const ConvertReport report = convert(files, 4.7);
  EXPECT_TRUE(std::isfinite(report.predicted_kl));
  check(report, 0.05);
  check(convert_to_gptq(files), 1e-3);
}

TEST_F(OddModels, DamagedWeightsAreNamedBeforeAnythingIsMeasured) {
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "model.norm.weight"}) {
    for (const float value : {NAN, -INFINITY, 1e6f}) {
      OddModel model(Json::object());
      model.set(name, 37, value);
      const ModelFiles files = model.files();
      for (const bool gptq : {false, true}) {
        const auto run = [&] { gptq ? convert_to_gptq(files) : convert(files, 4.7); };
        const std::string error = error_of(run, ErrorCode::kInvalidArgument);
        EXPECT_NE(error.find(name), std::string::npos) << error;
        EXPECT_NE(error.find(fmt::format("{}", value)), std::string::npos) << error;
      }
    }
  }
  EXPECT_EQ(steps_, 0);
}

// Rows of one token reach two of eight experts; the others are rounded all the same.
TEST_F(OddModels, ExpertsThatNobodyChoosesConvert) {
  OddModel model({{"architectures", {"MixtralForCausalLM"}},
                  {"model_type", "mixtral"},
                  {"num_local_experts", 8},
                  {"num_experts_per_tok", 2}});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string gate = fmt::format("model.layers.{}.block_sparse_moe.gate.weight", layer);
    model.fill(gate, 0.0f);  // ties go to the first two
  }
  const ModelFiles files = model.files();
  EXPECT_EQ(convert(files, 8.5).linears.size(), 2u * (4u + 8u * 3u) + 1u);
  EXPECT_LT(error_of_result(files), 1e-3);
  EXPECT_EQ(convert_to_gptq(files).linears.size(), 2u * (4u + 8u * 3u));
  EXPECT_EQ(format_of("model.layers.0.block_sparse_moe.experts.7.w2"), "gptq");
  EXPECT_LT(error_of_result(files), 1e-3);
}

}  // namespace
}  // namespace bl::test
