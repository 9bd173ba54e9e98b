#include "convert/eight_bit_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../engine/tiny_model.h"
#include "../model/golden.h"
#include "backend/registry.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_folder.h"
#include "random_rows.h"
#include "support/data.h"

namespace bl::test {
namespace {

// The copy is a whole model, quantized, which says nearly the same; the original stays as it is.
TEST(EightBitModel, SaysNearlyWhatTheModelSays) {
  const ModelFiles plain = open_model_folder(make_tiny_model("eight-bit-model"));
  const auto backend = open_backend("cpu", {.threads = 2});
  const ModelFiles copy = eight_bit_model(*backend, plain, {});
  const ModelLoader loader(*backend, copy, {});
  EXPECT_TRUE(loader.unused_tensors().empty());
  const std::string key = "model.layers.1.mlp.down_proj";
  EXPECT_EQ(format_name(load_weight_matrix(*copy.source, key, {})), "exl2");
  EXPECT_EQ(copy.source->find(key + ".weight"), nullptr);
  EXPECT_NE(plain.source->find(key + ".weight"), nullptr);
  const auto logits = [](const ModelFiles& files) {
    GoldenRun run("cpu", files, CacheType::kF32);
    return run.logits({random_rows(1, 40, 256).rows[0]})[0];
  };
  const std::vector<float> base = logits(plain), other = logits(copy);
  double sum = 0.0, power = 0.0;
  for (std::size_t i = 0; i < base.size(); ++i) {
    sum += (base[i] - other[i]) * (base[i] - other[i]);
    power += base[i] * base[i];
  }
  EXPECT_LT(sum, 0.002 * power);
  EXPECT_GT(sum, 0.0);
}

}  // namespace
}  // namespace bl::test
