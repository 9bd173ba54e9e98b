// --lora and lora merge, as a user meets them.

#include <gtest/gtest.h>

#include <cmath>

#include "../engine/tiny_model.h"
#include "../model/adapter_files.h"
#include "base/file.h"
#include "format/safetensors_folder.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class Lora : public testing::Test {
 protected:
  void SetUp() override {
    model_ = make_tiny_model("lora-model").string();
    work_ = scratch_dir("lora-work");
    AdapterFiles files;
    files.add("model.layers.0.self_attn.q_proj", {32, 32});
    files.add("model.layers.1.mlp.down_proj", {64, 32}, DType::kBF16);
    files.add("lm_head", {32, 320});
    files.write(work_ / "adapter");
    adapter_ = (work_ / "adapter").string();
    write_file_atomically(work_ / "ids.json", "[1, 50, 7, 300, 12, 99]");
  }
  std::vector<float> logits(const std::string& model, const std::vector<std::string>& more) {
    const std::string out = (work_ / "logits.safetensors").string();
    std::vector<std::string> words{"logits", "-m", model, "--ids",     work_ / "ids.json",
                                   "-o",     out,  "-q",  "--backend", "ref"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.status, 0) << result.err;
    const HostArray array = SafetensorsFolder(fs::path(out)).read("logits");
    const float* data = array.view.as<const float>();
    return {data, data + array.view.shape.elements()};
  }
  static double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    }
    return largest;
  }
  void expect_error(const std::vector<std::string>& words, int status, const std::string& says) {
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }

  std::string model_, adapter_;
  fs::path work_;
};

TEST_F(Lora, MergedEqualsAdded) {
  const std::string out = (work_ / "merged").string();
  const ProgramResult merged =
      run_program({"lora", "merge", "-m", model_, "--lora", adapter_ + ":0.5", "-o", out});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(merged.out, "");
  const std::vector<float> plain = logits(model_, {});
  const std::vector<float> added = logits(model_, {"--lora", adapter_ + ":0.5"});
  EXPECT_GT(largest_difference(plain, added), 0.1);
  EXPECT_LE(largest_difference(logits(out, {}), added), 0.02);
  // Weights add up, and may be negative.
  EXPECT_LE(
      largest_difference(logits(model_, {"--lora", adapter_, "--lora", adapter_ + ":-0.5"}), added),
      1e-4);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "config.json"}) {
    EXPECT_TRUE(fs::exists(fs::path(out) / file)) << file;
  }
  const auto text = [&](const std::vector<std::string>& model) {
    std::vector<std::string> words{"run", "-p", "hello", "-n", "8", "--greedy", "-q"};
    words.insert(words.end(), model.begin(), model.end());
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(text({"-m", out, "--backend", "ref"}),
            text({"-m", model_, "--lora", adapter_ + ":0.5", "--backend", "ref"}));
}

TEST_F(Lora, MergeWritesNothingHalf) {
  const std::string out = (work_ / "out").string();
  const std::vector<std::string> words{"lora",   "merge", "-m", model_, "--lora",
                                       adapter_, "-o",    out,  "-q"};
  fs::create_directories(out);
  write_file_atomically(fs::path(out) / "mine.txt", "mine");
  expect_error(words, 1, "--force");
  std::vector<std::string> forced = words;
  forced.push_back("--force");
  expect_error(forced, 1, "no config.json");
  EXPECT_EQ(read_file(fs::path(out) / "mine.txt"), "mine");
  std::vector<std::string> onto_model = words;
  onto_model[7] = model_;
  onto_model.push_back("--force");
  expect_error(onto_model, 1, "is an input");
  // A wrong adapter leaves neither a folder nor a temporary one.
  fs::remove_all(out);
  AdapterFiles wrong;
  wrong.add("model.layers.9.self_attn.q_proj", {32, 32});
  wrong.write(work_ / "wrong");
  expect_error({"lora", "merge", "-m", model_, "--lora", work_ / "wrong", "-o", out, "-q"}, 1,
               "model.layers.9.self_attn.q_proj");
  EXPECT_FALSE(fs::exists(out));
  for (const auto& entry : fs::directory_iterator(work_)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  }
  ASSERT_EQ(run_program(words).status, 0);
  std::vector<std::string> again = words;
  again.push_back("--force");
  EXPECT_EQ(run_program(again).status, 0);
}

TEST_F(Lora, WrongUseIsOneLine) {
  const std::vector<std::string> run{"run", "-m", model_, "-p", "x", "-q", "--lora"};
  const auto with = [&](const std::string& value) {
    std::vector<std::string> words = run;
    words.push_back(value);
    return words;
  };
  expect_error(with(adapter_ + ":much"), 2, "weight");
  expect_error(with(":1"), 2, "no folder");
  expect_error(with(adapter_ + ":1e9"), 2, "weight");
  expect_error(with((work_ / "none").string()), 1, "no such folder");
  expect_error({"lora", "merge", "-m", model_, "-o", (work_ / "o").string()}, 2, "--lora");
  expect_error({"lora", "merge", "-m", model_, "--lora", adapter_}, 2, "-o");
  expect_error({"lora"}, 2, "lora merge");
}

}  // namespace
}  // namespace bl::test
