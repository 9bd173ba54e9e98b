// --save-prefix and --load-prefix, as a user meets them.

#include <gtest/gtest.h>

#include <filesystem>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class PrefixFileCommands : public testing::Test {
 protected:
  void SetUp() override {
    model_ = make_tiny_model("prefix-model").string();
    work_ = scratch_dir("prefix-work");
    file_ = work_ / "text.prefix";
    for (int i = 0; i < 75; ++i) beginning_ += "so and ";  // two pages and a half
  }
  ProgramResult run(const std::string& prompt, const std::vector<std::string>& more) {
    std::vector<std::string> words{"run", "-m", model_, "-n", "12", "--greedy", "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words, prompt);
  }
  static void expect_line(const ProgramResult& result, int status, const std::string& says) {
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  }

  std::string model_, beginning_;
  fs::path work_, file_;
};

TEST_F(PrefixFileCommands, SaveTheBeginningOfWhatAnotherRunReads) {
  const ProgramResult saved = run(beginning_, {"--save-prefix", file_});
  expect_line(saved, 0, "512 of 526 tokens saved");
  const ProgramResult plain = run(beginning_ + "on", {});
  expect_line(plain, 0, "528 + ");
  EXPECT_EQ(plain.err.find("from the cache"), std::string::npos) << plain.err;
  const ProgramResult loaded = run(beginning_ + "on", {"--load-prefix", file_});
  expect_line(loaded, 0, "512 from the cache");
  EXPECT_EQ(loaded.out, plain.out);
  // A text that begins otherwise takes nothing from it.
  const ProgramResult other = run("x" + beginning_, {"--load-prefix", file_});
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(other.err.find("from the cache"), std::string::npos) << other.err;
}

TEST_F(PrefixFileCommands, AConversationToo) {
  const auto chat = [&](const std::string& option) {
    return run_program({"chat", "-m", model_, "-n", "4", "--greedy", "--threads", "1", "--system",
                        beginning_, option, file_},
                       "hello\n");
  };
  const ProgramResult saved = chat("--save-prefix");
  expect_line(saved, 0, "512 of");
  const ProgramResult loaded = chat("--load-prefix");
  expect_line(loaded, 0, "512 tokens");
  EXPECT_EQ(loaded.out, saved.out);
}

TEST_F(PrefixFileCommands, WhatCannotBeIsSaid) {
  expect_line(run("short", {"--save-prefix", file_}), 1, "only whole pages of 256");
  expect_line(run(beginning_, {"--save-prefix", work_ / "none" / "x"}), 1, "there is no folder");
  expect_line(run(beginning_, {"--load-prefix", work_ / "none"}), 1, "none");
  EXPECT_EQ(run(beginning_, {"--save-prefix", file_}).status, 0);
  const std::string bytes = read_file(file_);
  write_file_atomically(file_, bytes.substr(0, bytes.size() - 1));
  expect_line(run(beginning_, {"--load-prefix", file_}), 1, "text.prefix");
}

}  // namespace
}  // namespace bl::test
