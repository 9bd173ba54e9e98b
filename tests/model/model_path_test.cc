#include "model/model_path.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "support/data.h"
#include "support/error_of.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class ModelPaths : public testing::Test {
 protected:
  fs::path add(const char* name, const std::string& text = "") {
    write_file_atomically(folder_ / name, text);
    return folder_ / name;
  }
  std::string message(const fs::path& path, ErrorCode code) {
    return error_of([&] { resolve_model_path(path); }, code);
  }
  fs::path folder_ = scratch_dir("model-path");
};

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

TEST_F(ModelPaths, AGgufFileIsKnownByItsNameOrItsBytes) {
  EXPECT_EQ(resolve_model_path(add("a.gguf")).gguf, folder_ / "a.gguf");
  EXPECT_EQ(resolve_model_path(add("blob", "GGUF....")).gguf, folder_ / "blob");
}

TEST_F(ModelPaths, AFolderWithOneGgufModelStandsForIt) {
  add("config.json", "{}");  // repositories of GGUF files often have one
  add("m-00002-of-00002.gguf");
  add("m-00001-of-00002.gguf");
  EXPECT_EQ(resolve_model_path(folder_).gguf, folder_ / "m-00001-of-00002.gguf");
  add("m-Q8_0.gguf");
  const std::string several = message(folder_, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(has(several, "2 GGUF models; give one of them: ")) << several;
  EXPECT_TRUE(has(several, "m-00001-of-00002.gguf, ")) << several;
  EXPECT_TRUE(has(several, "m-Q8_0.gguf")) << several;
  add("model.safetensors");
  EXPECT_EQ(resolve_model_path(folder_).folder, folder_);
}

TEST_F(ModelPaths, AWeightsFileStandsForItsFolder) {
  const fs::path file = add("model.safetensors");
  EXPECT_TRUE(has(message(file, ErrorCode::kNotFound), "no config.json beside it"));
  add("config.json", "{}");
  EXPECT_EQ(resolve_model_path(file).folder, folder_);
  EXPECT_EQ(resolve_model_path(file).weights, file);
  const fs::path shard = add("model-00001-of-00002.safetensors");
  add("model.safetensors.index.json",
      R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "2.safetensors"}})");
  EXPECT_EQ(resolve_model_path(shard).folder, folder_);
  EXPECT_TRUE(resolve_model_path(shard).weights.empty());
}

TEST_F(ModelPaths, OtherPathsAreToldWhatAModelIs) {
  const std::string nothing = message(folder_ / "none", ErrorCode::kNotFound);
  EXPECT_TRUE(has(nothing, "no such file or folder; a model is a folder with config.json"))
      << nothing;
  const fs::path config = add("config.json", "{}");
  const std::string file = message(config, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(has(file, "this file is no model")) << file;
  EXPECT_TRUE(has(file, (": here perhaps " + folder_.string()).c_str())) << file;
}

}  // namespace
}  // namespace bl::test
