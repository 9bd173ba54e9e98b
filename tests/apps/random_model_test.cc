#include "random_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "tensor/float16.h"

namespace bl {
namespace {

struct Spread {
  double mean = 0.0;
  double deviation = 0.0;
};

// Tensors are made when they are read: of a shape with narrow keys and values that is little.
RandomModel model_of(const std::string& mix, bool level) {
  RandomModelRequest request;
  request.shape = "tinyllama-1.1b";
  request.format = "exl2";
  request.mix = mix;
  request.level = level;
  return make_random_model(request);
}

Spread spread_of(const RandomModel& model, const std::string& key) {
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

// Weights of every width are so large that a product is as large as what it reads, and mean nothing
// on average.
TEST(RandomModels, LevelWeightsAreOfOneSize) {
  for (const char* mix : {"2.5", "3", "4", "4+", "5", "6", "6+", "7", "3.2+"}) {
    const RandomModel level = model_of(mix, true);
    for (const char* key : {"self_attn.k_proj", "self_attn.v_proj"}) {
      const Spread spread = spread_of(level, std::string("model.layers.0.") + key);
      EXPECT_NEAR(spread.mean, 0.0, 4e-4) << mix << ", " << key;
      EXPECT_NEAR(spread.deviation, 1 / std::sqrt(2048.0), 0.003) << mix << ", " << key;
    }
  }
  // Measured models have weights as the peers have them: larger the wider, and a negative mean.
  const Spread usual = spread_of(model_of("6", false), "model.layers.0.self_attn.k_proj");
  EXPECT_GT(usual.deviation, 0.15);
  EXPECT_LT(usual.mean, -2e-3);
}

// Bulk weights that are made in place are those that everybody else is given.
TEST(RandomModels, SeedsStandForTheBulk) {
  for (const char* format : {"exl2", "gptq", "bf16", "fp16"}) {
    RandomModelRequest request;
    request.shape = "tinyllama-1.1b";
    request.format = format;
    request.mix = "4";
    const RandomModel model = make_random_model(request);
    std::size_t seeded = 0;
    std::size_t all = 0;
    for (const std::string& name : model.source->names()) {
      const TensorInfo& info = *model.source->find(name);
      const auto bytes = static_cast<std::size_t>(info.shape.elements()) * size_of(info.dtype);
      const HostArray array = model.source->read_seeded(name);
      ASSERT_EQ(array.view.shape, info.shape) << name;
      all += bytes;
      if (array.seeded) seeded += bytes;
      // Of one block, since all take their time.
      if (!name.starts_with("model.layers.3.")) continue;
      const HostArray made = model.source->read(name);
      ASSERT_FALSE(made.seeded) << name;
      std::vector<std::byte> own(bytes);
      if (array.seeded) {
        make_values(*array.seeded, own.data(), bytes);
      } else {
        std::memcpy(own.data(), array.view.data, bytes);
      }
      ASSERT_EQ(std::memcmp(own.data(), made.view.data, bytes), 0) << name;
    }
    EXPECT_GT(static_cast<double>(seeded), 0.9 * static_cast<double>(all)) << format;
  }
}

// Norms of both signs take apart what all channels have in common.
TEST(RandomModels, LevelNormsHaveBothSigns) {
  const auto ones = [](const RandomModel& model, const char* name) {
    const HostArray weights = model.source->read(name);
    const auto* values = weights.view.as<const std::uint16_t>();
    return std::count(values, values + weights.view.shape.elements(), float_to_half(1.0f));
  };
  const RandomModel level = model_of("4", true);
  const RandomModel usual = model_of("4", false);
  for (const char* name : {"model.layers.0.input_layernorm.weight", "model.norm.weight"}) {
    EXPECT_NEAR(static_cast<double>(ones(level, name)), 1024.0, 128.0) << name;
    EXPECT_EQ(ones(usual, name), 2048) << name;
  }
}

// Any number of bits is a mix of the widths around it.
TEST(RandomModels, BitsAreWhatIsAskedFor) {
  for (const double bits : {2.0, 2.3, 3.7, 4.5, 7.0, 8.0}) {
    const RandomModel model = model_of(fmt::format("{}", bits), false);
    const auto codes = model.source->find("model.layers.0.self_attn.q_proj.q_weight")->shape;
    const double per_weight = 32.0 * static_cast<double>(codes.elements()) / (2048.0 * 2048.0);
    EXPECT_NEAR(per_weight, bits, 0.1) << bits;
    // Scales and the order of channels take their share.
    EXPECT_NEAR(model.summary.bits_per_weight, bits, 0.2) << bits;
  }
  for (const char* bits : {"1", "9", "4-", "four", "+"}) {
    EXPECT_THROW(model_of(bits, false), Error) << bits;
  }
}

RandomModel cut_model(const std::string& shape, std::int64_t layers) {
  RandomModelRequest request;
  request.shape = shape;
  request.format = "exl2";
  request.mix = "4";
  request.layers = layers;
  return make_random_model(request);
}

TEST(RandomModels, LayersCanBeCut) {
  const RandomModel whole = cut_model("tinyllama-1.1b", 0);
  const RandomModel cut = cut_model("tinyllama-1.1b", 3);
  EXPECT_EQ(whole.summary.layers, 22);
  EXPECT_EQ(cut.summary.layers, 3);
  EXPECT_EQ(cut.config.at("num_hidden_layers"), 3);
  EXPECT_NE(cut.source->find("model.layers.2.mlp.up_proj.q_weight"), nullptr);
  EXPECT_EQ(cut.source->find("model.layers.3.mlp.up_proj.q_weight"), nullptr);
  EXPECT_THROW(cut_model("tinyllama-1.1b", 23), Error);
}

// A plan of a large model of many small matrices takes no memory for their codes.
TEST(RandomModels, BulkOfAHollowModelIsShared) {
  RandomModelRequest request;
  request.shape = "tinyllama-1.1b";
  request.format = "exl2";
  request.mix = "4";
  request.hollow = true;
  const RandomModel model = make_random_model(request);
  // Half a megabyte each.
  const HostArray one = model.source->read("model.layers.0.self_attn.k_proj.q_weight");
  const HostArray other = model.source->read("model.layers.1.self_attn.k_proj.q_weight");
  EXPECT_EQ(one.view.data, other.view.data);
  EXPECT_FALSE(one.seeded);
}

TEST(RandomModels, SaysWhatItMade) {
  const RandomModelSummary summary = cut_model("llama3-8b", 0).summary;
  EXPECT_EQ(summary.architecture, "LlamaForCausalLM");
  EXPECT_EQ(summary.parameters, 8030261248);  // as its authors count them
  EXPECT_NEAR(summary.bits_per_weight, 4.0, 0.2);
  // 7 billion weights of the blocks; the embedding in binary16, the head of 6 bits.
  EXPECT_NEAR(static_cast<double>(summary.bytes), 6.98e9 / 2 + 1.05e9 + 0.4e9, 0.1e9);
}

}  // namespace
}  // namespace bl
