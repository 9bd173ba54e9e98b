// Checkpoints of others that once were not read, with what transformers or llama.cpp make of them.
// They are not in the repository (support/data.h).

#include <gtest/gtest.h>

#include "base/json.h"
#include "format/safetensors_folder.h"
#include "model/gguf_model.h"
#include "model/golden.h"
#include "support/data.h"
#include "text/tokenizer.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

fs::path report(const std::string& name) {
  const fs::path folder = shared_dir() / "reports" / name;
  return !shared_dir().empty() && fs::is_directory(folder) ? folder : fs::path();
}

class ReportedCheckpoint : public testing::TestWithParam<const char*> {};

TEST_P(ReportedCheckpoint, GivesTheLogits) {
  const fs::path folder = report(GetParam());
  if (folder.empty()) GTEST_SKIP() << "no reports/" << GetParam() << ": set BITLOOM_DATA";
  const auto ids = read_json_file(folder / "ids.json").get<std::vector<std::int32_t>>();
  const auto expected =
      values_of<float>(SafetensorsFolder(folder / "expected.safetensors"), "logits");
  fs::path copy = scratch_dir("report");  // the folder itself also holds the expected logits
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() != "expected.safetensors") {
      fs::copy_file(entry.path(), copy / entry.path().filename());
    }
  }
  GoldenRun run("ref", copy, CacheType::kF32);
  const std::vector<float> logits = run.logits({ids})[0];
  ASSERT_EQ(logits.size(), expected.size());
  EXPECT_LE(largest_difference(logits, expected), 2e-5);
  fs::remove_all(copy);
}

INSTANTIATE_TEST_SUITE_P(Reports, ReportedCheckpoint,
                         testing::Values("auto-round-gptq-layout", "index-names-absent-tensor",
                                         "names-without-model-prefix"),
                         [](const auto& info) { return case_name(info.param); });

TEST(ReportedGguf, ShardsAreTheWholeModel) {
  const fs::path folder = report("gguf-split");
  if (folder.empty()) GTEST_SKIP() << "no reports/gguf-split: set BITLOOM_DATA";
  const GgufModel joined = open_gguf(folder / "joined.gguf", ArchLibrary());
  for (const char* shard : {"tiny-00001-of-00002.gguf", "tiny-00002-of-00002.gguf"}) {
    const GgufModel split = open_gguf(folder / shard, ArchLibrary());
    EXPECT_EQ(split.config, joined.config);
    EXPECT_EQ(split.tokenizer_json, joined.tokenizer_json);
    ASSERT_EQ(split.tensors->names(), joined.tensors->names());
    for (const std::string& name : joined.tensors->names()) {
      EXPECT_EQ(values_of<std::uint16_t>(*split.tensors, name),
                values_of<std::uint16_t>(*joined.tensors, name))
          << name;
    }
  }
}

TEST(ReportedGguf, DigitsAreCutFromTheRight) {
  const fs::path folder = report("gguf-pre-afmoe");
  if (folder.empty()) GTEST_SKIP() << "no reports/gguf-pre-afmoe: set BITLOOM_DATA";
  const GgufModel model = open_gguf(folder / "tiny.gguf", ArchLibrary());
  const auto tokenizer =
      Tokenizer::from_json(model.tokenizer_json, model.tokenizer_config.dump(), "test");
  const std::vector<std::int32_t> ids = tokenizer->encode("hello 1234", {.add_special = false});
  EXPECT_EQ(tokenizer->decode(ids, false), "hello 1234");
}

}  // namespace
}  // namespace bl::test
