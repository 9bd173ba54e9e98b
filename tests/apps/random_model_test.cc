#include "random_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "tensor/float16.h"

namespace bl {
namespace {

struct Spread {
  double mean = 0.0;
  double deviation = 0.0;
};

class RandomModels : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / "bitloom_random_model_test.json";
    write_file_atomically(path_, R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_act": "silu", "rms_norm_eps": 1e-5, "hidden_size": 512, "intermediate_size": 1024,
 "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 96,
 "max_position_embeddings": 512, "rope_theta": 10000.0})");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  RandomModel model(const std::string& mix, bool level) const {
    RandomModelRequest request;
    request.shape = path_.string();
    request.format = "exl2";
    request.mix = mix;
    request.level = level;
    return make_random_model(request);
  }

  static Spread spread_of(const RandomModel& model, const std::string& key) {
    const std::vector<std::uint16_t> values =
        dequantize_to_half(load_weight_matrix(*model.source, key, {}));
    double sum = 0.0;
    double squares = 0.0;
    for (const std::uint16_t bits : values) {
      const double value = half_to_float(bits);
      sum += value;
      squares += value * value;
    }
    const auto count = static_cast<double>(values.size());
    return {sum / count, std::sqrt(squares / count)};
  }

 private:
  std::filesystem::path path_;
};

// Weights of every width are as large as real ones, and mean nothing on average.
TEST_F(RandomModels, LevelWeightsAreOfOneSize) {
  for (const char* mix : {"2.5", "3", "4", "4+", "5", "6", "6+"}) {
    const RandomModel level = model(mix, true);
    for (const char* key : {"self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"}) {
      const Spread spread = spread_of(level, std::string("model.layers.0.") + key);
      EXPECT_NEAR(spread.mean, 0.0, 4e-4) << mix << ", " << key;
      // Few groups, whose scales differ.
      EXPECT_NEAR(spread.deviation, 0.027, 0.009) << mix << ", " << key;
    }
  }
  // Others are as the peers' are: larger the wider, and lower than nothing.
  const Spread usual = spread_of(model("6", false), "model.layers.0.self_attn.q_proj");
  EXPECT_GT(usual.deviation, 0.15);
  EXPECT_LT(usual.mean, -2e-3);
}

// What is alike in all channels does not stay so.
TEST_F(RandomModels, LevelNormsHaveBothSigns) {
  const auto ones = [](const RandomModel& model, const char* name) {
    const HostArray weights = model.source->read(name);
    const auto* values = weights.view.as<const std::uint16_t>();
    return std::count(values, values + weights.view.shape.elements(), float_to_half(1.0f));
  };
  const RandomModel level = model("4", true);
  for (const char* name : {"model.layers.0.input_layernorm.weight", "model.norm.weight"}) {
    EXPECT_NEAR(static_cast<double>(ones(level, name)), 256.0, 64.0) << name;
    EXPECT_EQ(ones(model("4", false), name), 512) << name;
  }
}

}  // namespace
}  // namespace bl
