// Tiny random models, converted to GGUF by the reference converter, must come back with the tensors
// and the logits that they had before (tools/make_gguf_goldens.py).

#include "model/gguf_import.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "format/gguf_bytes.h"
#include "format/safetensors_folder.h"
#include "model/arch_library.h"
#include "model/gguf_model.h"
#include "model/golden.h"
#include "model/hf_config.h"
#include "model/model_spec.h"
#include "support/data.h"
#include "text/tokenizer.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> model_names() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(unpacked("gguf") / "models")) {
    names.insert(entry.path().filename().string());
  }
  return {names.begin(), names.end()};
}

std::uint32_t crc32(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1u)));
  }
  return ~crc;
}

std::string shape_text(const Json& sizes) {
  std::string text = "[";
  for (const Json& size : sizes) text += (text.size() > 1 ? ", " : "") + size.dump();
  return text + "]";
}

class GgufImport : public testing::TestWithParam<std::string> {
 protected:
  fs::path folder() const { return unpacked("gguf") / "models" / GetParam(); }
  Json expected() const { return read_json_file(folder() / "expected.json"); }
};

TEST_P(GgufImport, TensorsAreThoseOfTheModel) {
  const GgufModel model = open_gguf(folder() / "model.gguf", ArchLibrary());
  const Json expected = this->expected();
  EXPECT_EQ(model.config["architectures"][0],
            GetParam() == "mistral" ? "LlamaForCausalLM" : expected["architecture"]);
  const Json& tensors = expected["tensors"];
  EXPECT_EQ(model.tensors->names().size(), tensors.size());
  for (const auto& [name, about] : tensors.items()) {
    const TensorInfo* info = model.tensors->find(name);
    ASSERT_NE(info, nullptr) << name;
    EXPECT_EQ(info->shape.to_string(), shape_text(about["shape"])) << name;
    const HostArray array = model.tensors->read(name);
    const std::size_t bytes = static_cast<std::size_t>(array.view.shape.elements()) * 2;
    EXPECT_EQ(crc32({static_cast<const std::byte*>(array.view.data), bytes}),
              about["crc32"].get<std::uint32_t>())
        << name;
  }
}

TEST_P(GgufImport, LogitsAreThoseOfTheModel) {
  const fs::path out = scratch_dir("gguf-import") / "model";
  import_gguf({.file = folder() / "model.gguf", .folder = out, .progress = nullptr}, ArchLibrary());
  const Golden golden(folder());
  GoldenRun run("ref", out, CacheType::kF32);
  for (const GoldenPrompt& prompt : golden.prompts()) {
    const std::vector<float> logits = run.logits({prompt.ids})[0];
    ASSERT_EQ(logits.size(), prompt.logits.size());
    EXPECT_LE(largest_difference(logits, prompt.logits),
              1e-3 * std::max(1.0, deviation(prompt.logits)));
  }
  fs::remove_all(out);
}

// Whoever reads the folder takes an absent key for the default of its class, which a GGUF file does
// not mean.
TEST_P(GgufImport, ConfigLeavesNothingToTheClass) {
  const GgufModel model = open_gguf(folder() / "model.gguf", ArchLibrary());
  HfConfig file(model.config, "model.gguf");
  file.forget_class_options();
  const ModelSpec meant = build_model_spec(ArchLibrary(), file, {});
  const ModelSpec read = build_model_spec(ArchLibrary(), HfConfig(model.config, "config.json"), {});
  EXPECT_EQ(read.unknown_keys, std::vector<std::string>{});
  EXPECT_TRUE(read.sizes.absent.empty()) << read.sizes.absent.begin()->first;
  EXPECT_EQ(read.ropes, meant.ropes);
  EXPECT_EQ(read.final_norm, meant.final_norm);
  EXPECT_EQ(read.embed_multiplier, meant.embed_multiplier);
  EXPECT_EQ(read.head_multiplier, meant.head_multiplier);
  EXPECT_EQ(read.head_softcap, meant.head_softcap);
  ASSERT_EQ(read.blocks.size(), meant.blocks.size());
  for (std::size_t i = 0; i < read.blocks.size(); ++i) {
    SCOPED_TRACE(i);
    const BlockSpec& ours = read.blocks[i];
    const BlockSpec& theirs = meant.blocks[i];
    EXPECT_EQ(ours.feed_forward, theirs.feed_forward);
    EXPECT_EQ(ours.moe, theirs.moe);
    EXPECT_EQ(ours.attention->scale, theirs.attention->scale);
    EXPECT_EQ(ours.attention->softcap, theirs.attention->softcap);
    EXPECT_EQ(ours.attention->clip, theirs.attention->clip);
    EXPECT_EQ(ours.attention->window, theirs.attention->window);
  }
}

TEST_P(GgufImport, VocabularyGivesTheIds) {
  const Json expected = this->expected();
  const GgufModel model = open_gguf(folder() / "model.gguf", ArchLibrary());
  EXPECT_EQ(model.tokenizer_json.empty(), !expected.contains("tokenize"));
  if (model.tokenizer_json.empty()) return;
  const auto tokenizer =
      Tokenizer::from_json(model.tokenizer_json, model.tokenizer_config.dump(), "test");
  for (const Json& item : expected["tokenize"]) {
    const std::string text = item["text"];
    const std::vector<std::int32_t> ids = tokenizer->encode(text, {.add_special = false});
    EXPECT_EQ(ids, item["ids"].get<std::vector<std::int32_t>>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GgufImport, testing::ValuesIn(model_names()),
                         [](const auto& info) { return case_name(info.param); });

// --- the folder that an import leaves, or does not leave ---

fs::path one_model() { return unpacked("gguf") / "models" / "llama" / "model.gguf"; }

std::string error_of(const GgufImportArgs& args) {
  try {
    import_gguf(args, ArchLibrary());
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(GgufImportFolder, WritesAWholeModel) {
  const fs::path work = scratch_dir("gguf-folder");
  const auto result =
      import_gguf({.file = one_model(), .folder = work / "m/", .progress = nullptr}, ArchLibrary());
  EXPECT_TRUE(result.tokenizer);
  EXPECT_EQ(result.shards, 1);
  for (const char* name : {"model.safetensors", "config.json", "generation_config.json",
                           "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_TRUE(fs::exists(work / "m" / name)) << name;
  }
  EXPECT_EQ(entries(work), 1u);
  EXPECT_EQ(read_json_file(work / "m" / "generation_config.json")["eos_token_id"], 1);
  EXPECT_EQ(read_json_file(work / "m" / "tokenizer_config.json")["bos_token"], "<|begin|>");
}

TEST(GgufImportFolder, CutsLargeModelsIntoShards) {
  const fs::path work = scratch_dir("gguf-shards");
  const auto result = import_gguf(
      {.file = one_model(), .folder = work / "m", .shard_bytes = 40000, .progress = nullptr},
      ArchLibrary());
  EXPECT_GT(result.shards, 1);
  EXPECT_TRUE(fs::exists(work / "m" / "model.safetensors.index.json"));
  const SafetensorsFolder folder(work / "m");
  EXPECT_EQ(static_cast<std::int64_t>(folder.names().size()), result.tensors);
}

TEST(GgufImportFolder, LeavesNothingWhenItIsStopped) {
  const fs::path work = scratch_dir("gguf-stopped");
  GgufImportArgs args{.file = one_model(), .folder = work / "m", .progress = nullptr};
  args.progress = [](std::int64_t done, std::int64_t total) {
    if (done > total / 2) fail(ErrorCode::kCancelled, "stopped");
  };
  EXPECT_EQ(error_of(args), "stopped");
  EXPECT_EQ(entries(work), 0u);
}

TEST(GgufImportFolder, ReplacesOnlyModelsAndOnlyByForce) {
  const fs::path work = scratch_dir("gguf-force");
  fs::create_directories(work / "m");
  GgufImportArgs args{.file = one_model(), .folder = work / "m", .progress = nullptr};
  EXPECT_EQ(error_of(args), "");  // an empty folder is a fine place
  EXPECT_NE(error_of(args).find("not empty"), std::string::npos);
  args.force = true;
  std::ofstream(work / "m" / "notes.txt") << "old";
  EXPECT_EQ(error_of(args), "");
  EXPECT_FALSE(fs::exists(work / "m" / "notes.txt"));
  fs::create_directories(work / "m" / "precious");
  EXPECT_NE(error_of(args).find("precious"), std::string::npos);
  EXPECT_TRUE(fs::exists(work / "m" / "precious"));
  EXPECT_EQ(entries(work), 1u);
}

TEST(GgufImportFolder, RefusesAFileBeforeItWrites) {
  const fs::path work = scratch_dir("gguf-bad");
  std::ofstream(work / "bad.gguf", std::ios::binary) << "GGUF, but not really";
  EXPECT_NE(error_of({.file = work / "bad.gguf", .folder = work / "m", .progress = nullptr}), "");
  EXPECT_NE(error_of({.file = work / "no.gguf", .folder = work / "m", .progress = nullptr}), "");
  EXPECT_EQ(entries(work), 1u);
}

}  // namespace
}  // namespace bl::test
