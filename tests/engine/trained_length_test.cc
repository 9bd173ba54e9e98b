#include "engine/trained_length.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace bl {
namespace {

ModelSpec spec_with(RopeSpec rope) {
  ModelSpec spec;
  spec.config_file = "DIR/config.json";
  spec.max_positions = 2048;
  spec.ropes = {rope};
  return spec;
}

TEST(TrainedLength, IsWhatTheConfigSays) {
  EXPECT_EQ(trained_length(spec_with({}), {}), 2048);
  EXPECT_EQ(trained_length(spec_with({.kind = RopeKind::kLinear, .factor = 4}), {}), 2048);
  EXPECT_EQ(trained_length(spec_with({.kind = RopeKind::kDynamic}), {}), INT64_MAX);
  const RopeSpec yarn{.kind = RopeKind::kYarn, .factor = 4, .original_positions = 2048};
  EXPECT_EQ(trained_length(spec_with(yarn), {}), 8192);
  const RopeSpec counted{.kind = RopeKind::kYarn, .factor = 4, .original_positions = 512};
  EXPECT_EQ(trained_length(spec_with(counted), {}), 2048);
  ModelSpec without = spec_with({});
  without.ropes.clear();
  EXPECT_EQ(trained_length(without, {}), INT64_MAX);
}

TEST(TrainedLength, OptionsStretchIt) {
  EXPECT_EQ(trained_length(spec_with({.linear_scale = 2.5}), {.rope_scale = 2.5}), 5120);
  EXPECT_EQ(trained_length(spec_with({}), {.rope_alpha = 3}), INT64_MAX);
}

TEST(TrainedLength, SomeLayersMayKeepTheShortOne) {
  ModelSpec spec = spec_with({});
  spec.ropes.push_back({.kind = RopeKind::kYarn, .factor = 8, .original_positions = 2048});
  EXPECT_EQ(trained_length(spec, {}), 16384);
}

TEST(TrainedLength, AdviceNamesOptionsAndKey) {
  EXPECT_EQ(rope_advice(spec_with({}), {}, 2048), "");
  EXPECT_EQ(rope_advice(spec_with({}), {}, 5000),
            "the model was trained for 2048 tokens; 5000 of them need --rope-alpha 2.5 (or "
            "--rope-scale 2.5, or \"rope_scaling\" in DIR/config.json)");
  EXPECT_EQ(rope_advice(spec_with({.linear_scale = 2.5}), {.rope_scale = 2.5}, 5000), "");
}

}  // namespace
}  // namespace bl
