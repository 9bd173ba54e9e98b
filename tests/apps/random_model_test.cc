#include "random_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

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

// Weights of every width are as large as real ones, and mean nothing on average.
TEST(RandomModels, LevelWeightsAreOfOneSize) {
  for (const char* mix : {"2.5", "3", "4", "4+", "5", "6", "6+"}) {
    const RandomModel level = model_of(mix, true);
    for (const char* key : {"self_attn.k_proj", "self_attn.v_proj"}) {
      const Spread spread = spread_of(level, std::string("model.layers.0.") + key);
      EXPECT_NEAR(spread.mean, 0.0, 4e-4) << mix << ", " << key;
      // Scales differ, which makes it more than 0.02.
      EXPECT_NEAR(spread.deviation, 0.027, 0.004) << mix << ", " << key;
    }
  }
  // Others are as the peers' are: larger the wider, and lower than nothing.
  const Spread usual = spread_of(model_of("6", false), "model.layers.0.self_attn.k_proj");
  EXPECT_GT(usual.deviation, 0.15);
  EXPECT_LT(usual.mean, -2e-3);
}

// Who makes bulk weights in place makes those that all others are given.
TEST(RandomModels, SeedsStandForTheBulk) {
  for (const char* format : {"exl2", "gptq", "fp16"}) {
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

// What is alike in all channels does not stay so.
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

}  // namespace
}  // namespace bl
