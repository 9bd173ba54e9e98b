// What -m and import take besides a folder with config.json: shards of GGUF models, folders with
// one, and files of weights. The GGUF files are not in the repository (support/data.h).

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "format/safetensors_folder.h"
#include "model/golden.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

std::string answer_of(const fs::path& model) {
  const ProgramResult result =
      run_program({"run", "-m", model.string(), "-p", "hello 1234", "-n", "3", "--greedy", "-q"});
  EXPECT_EQ(result.status, 0) << result.err;
  return result.out;
}

TEST(CheckpointPaths, ShardsAndTheirFolderAnswerAsTheJoinedFile) {
  const fs::path report = shared_dir() / "reports" / "gguf-split";
  if (shared_dir().empty() || !fs::exists(report)) {
    GTEST_SKIP() << "no reports/gguf-split: set BITLOOM_DATA";
  }
  const fs::path folder = scratch_dir("checkpoint-paths");
  const char* names[] = {"tiny-00001-of-00002.gguf", "tiny-00002-of-00002.gguf"};
  for (const char* name : names) fs::copy_file(report / name, folder / name);
  const std::string expected = answer_of(report / "joined.gguf");
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(answer_of(folder / names[0]), expected);
  EXPECT_EQ(answer_of(folder / names[1]), expected);
  EXPECT_EQ(answer_of(folder), expected);
  const fs::path imported = folder / "imported";
  const ProgramResult import =
      run_program({"import", (folder / names[1]).string(), "-o", imported.string()});
  ASSERT_EQ(import.status, 0) << import.err;
  EXPECT_EQ(answer_of(imported), expected);
  EXPECT_EQ(answer_of(imported / "model.safetensors"), expected);
  fs::remove_all(folder);
}

TEST(CheckpointPaths, AWeightsFileChoosesTheWeights) {
  const fs::path folder = scratch_dir("checkpoint-weights");
  fs::copy(model_folder("hf-tiny/llama"), folder, fs::copy_options::recursive);
  write_file_atomically(folder / "other.safetensors", read_file(folder / "model.safetensors"));
  fs::copy_file(model_folder("hf-tiny/llama-rope-linear") / "model.safetensors",
                folder / "model.safetensors", fs::copy_options::overwrite_existing);
  write_file_atomically(folder / "ids.json", "[1, 2, 3]");
  const auto logits_of = [&](const fs::path& model) {
    const fs::path out = folder / "out.safetensors";
    const ProgramResult result =
        run_program({"logits", "-m", model.string(), "--ids", (folder / "ids.json").string(), "-o",
                     out.string(), "--backend", "ref"});
    EXPECT_EQ(result.status, 0) << result.err;
    return values_of<float>(SafetensorsFolder(out), "logits");
  };
  const std::vector<float> expected = logits_of(model_folder("hf-tiny/llama"));
  EXPECT_EQ(logits_of(folder / "other.safetensors"), expected);
  EXPECT_NE(logits_of(folder), expected);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace bl::test
