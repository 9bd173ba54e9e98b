// Models of which some modules are other models'.
#include "engine/open_model.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "engine/model_session.h"
#include "support/data.h"
#include "support/error_of.h"

namespace bl {
namespace {

namespace fs = std::filesystem;
using test::error_of;

fs::path model(const char* name) { return test::unpacked("exl2-gptq") / name; }

// Whatever the widths and groups of either.
TEST(OverriddenModel, GptqModelsMix) {
  const std::vector<WeightOverride> overrides{
      {"model.layers.1.*", model("gptq-4bit-g32-actorder")},
      {"model.layers.0.mlp.up_proj", model("gptq-4bit-g64-asym")}};
  SessionOptions options;
  options.model = model("gptq-4bit-g128");
  options.backend = "ref";
  options.context = 64;
  options.with_text = false;
  options.overrides = overrides;
  EXPECT_NO_THROW(ModelSession::load(options));
  options.model = model("exl2-low");
  EXPECT_NO_THROW(ModelSession::load(options));
}

TEST(OverriddenModel, OneModelHasOneKindOfZeroPoints) {
  const fs::path other = test::scratch_dir("gptq-v2");
  const fs::path from = model("gptq-4bit-g128");
  fs::copy(from, other, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  Json config = read_json_file(other / "config.json");
  config["quantization_config"]["checkpoint_format"] = "gptq_v2";
  write_file_atomically(other / "config.json", config.dump());
  fs::remove(other / "quantize_config.json");
  const std::vector<WeightOverride> overrides{{"*.mlp.*", other}};
  const std::string message =
      error_of([&] { open_model(from, "", overrides); }, ErrorCode::kUnsupported);
  EXPECT_NE(message.find("GPTQ v1 and v2"), std::string::npos) << message;
}

TEST(OverriddenModel, WhatIsNotThereIsAnError) {
  const fs::path base = model("exl2-low");
  const std::vector<WeightOverride> missing{{"*", "/nonexistent/model"}};
  error_of([&] { open_model(base, "", missing); }, ErrorCode::kNotFound);
  SessionOptions options;
  options.opened = std::make_shared<OpenedModel>(open_model(base, ""));
  options.overrides = {{"*", base}};
  error_of([&] { ModelSession::load(options); }, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace bl
