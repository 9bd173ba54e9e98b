// --preset and what else of generation has flags.

#include <gtest/gtest.h>

#include <filesystem>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "base/json.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class Presets : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = make_tiny_model("presets").string(); }
  static ProgramResult run(const std::vector<std::string>& more) {
    std::vector<std::string> words{"run", "-m", model_,  "--backend", "ref", "-n",
                                   "24",  "-p", "weave", "--seed",    "3"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  static std::string model_;
};
std::string Presets::model_;

TEST_F(Presets, HelpNamesThemAll) {
  for (const char* command : {"run", "chat", "batch", "bench"}) {
    const ProgramResult help = run_program({command, "--help"});
    EXPECT_NE(help.out.find("--preset NAME|FILE"), std::string::npos) << command;
    for (const char* name : {"balanced", "creative", "greedy", "no-loops", "precise", "steady"}) {
      EXPECT_NE(help.out.find(name), std::string::npos) << command << " " << name;
    }
  }
}

TEST_F(Presets, UnknownOnesAreAnsweredWithTheNearest) {
  const ProgramResult wrong = run({"--preset", "creativ"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("did you mean creative?"), std::string::npos) << wrong.err;
  EXPECT_NE(wrong.err.find("steady"), std::string::npos) << wrong.err;
  EXPECT_EQ(run({"--preset", "/nowhere/x.json"}).status, 1);
  EXPECT_EQ(run_program({"bench", "-m", model_, "--preset", "creativ"}).status, 2);
  EXPECT_EQ(run_program({"bench", "serve", "-m", model_, "--preset", "creativ"}).status, 2);
}

TEST_F(Presets, LieBetweenTheModelsValuesAndFlags) {
  const std::string greedy = run({"--greedy"}).out;
  EXPECT_EQ(run({"--preset", "greedy"}).out, greedy);
  const std::string hot = run({"--temperature", "3", "--top-k", "0"}).out;
  EXPECT_NE(hot, greedy);
  EXPECT_EQ(run({"--preset", "greedy", "--temperature", "3", "--top-k", "0"}).out, hot);
  const auto file = scratch_dir("preset-files") / "mine.json";
  write_file_atomically(file,
                        R"({"temperature": {"override": 0, "force": true}, "max_tokens": 9})");
  const ProgramResult forced = run({"--preset", file.string(), "--temperature", "3"});
  EXPECT_EQ(forced.status, 0) << forced.err;
  EXPECT_EQ(forced.out, greedy);
  // Stop strings of a preset stay beside the user's where it says so.
  ASSERT_GT(greedy.size(), 6u);
  write_file_atomically(file,
                        R"({"temperature": 0, "stop": {"override": ["zzz"], "additive": true}})");
  EXPECT_EQ(run({"--preset", file.string(), "--stop", greedy.substr(4, 2)}).out,
            run({"--greedy", "--stop", greedy.substr(4, 2)}).out);
}

TEST_F(Presets, TheOrderOfSamplersIsTheUsers) {
  const std::vector<std::string> on{"--temperature", "3",   "--top-k", "0",
                                    "--top-p",       "0.6", "--min-p", "0.01"};
  const auto with = [&](const char* order) {
    std::vector<std::string> words = on;
    if (*order != 0) words.insert(words.end(), {"--sampler-order", order});
    return run(words);
  };
  const std::string usual = with("").out;
  EXPECT_EQ(with("temperature,top-p,min-p").out, usual);
  const ProgramResult late = with("min-p,top-p,temperature");
  EXPECT_EQ(late.status, 0) << late.err;
  EXPECT_NE(late.out, usual);
  const ProgramResult wrong = with("temperature,top_p");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("list names from smoothing, temperature"), std::string::npos);
  EXPECT_NE(with("temperature,top-p").err.find("does not name min-p"), std::string::npos);
}

TEST_F(Presets, MeasurementsSampleByThem) {
  const ProgramResult bench = run_program({"bench", "-m", model_, "--backend", "ref", "-p", "0",
                                           "-n", "8", "-r", "1", "--preset", "creative", "--json"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  const ProgramResult serve =
      run_program({"bench", "serve", "-m", model_, "--backend", "ref", "-r", "4", "-c", "2", "-p",
                   "8", "-n", "8", "--preset", "steady", "--json"});
  EXPECT_EQ(serve.status, 0) << serve.err;
  EXPECT_EQ(parse_json(serve.out, "serve").at("generated_tokens"), 32);
}

TEST_F(Presets, WhatTheEngineRefusesEndsALoadTestWithItsReason) {
  const fs::path file = scratch_dir("presets-refused") / "far.json";
  write_file_atomically(file, R"({"banned_tokens": [999999]})");
  const ProgramResult serve =
      run_program({"bench", "serve", "-m", model_, "--backend", "ref", "-r", "4", "-c", "2", "-p",
                   "8", "-n", "8", "--preset", file.string()});
  EXPECT_EQ(serve.status, 1);
  EXPECT_NE(serve.err.find("999999"), std::string::npos) << serve.err;
}

TEST_F(Presets, FlagsOfTheEngine) {
  const std::string plain = run({"--greedy"}).out;
  char letter = 0;
  for (const char c : plain) {
    if (c > ' ' && c < 127 && letter == 0) letter = c;
  }
  ASSERT_NE(letter, 0) << plain;
  const ProgramResult banned = run({"--greedy", "--ban", std::string(1, letter)});
  EXPECT_EQ(banned.status, 0) << banned.err;
  EXPECT_EQ(banned.out.find(letter), std::string::npos) << banned.out;
  const ProgramResult guided =
      run({"--greedy", "--cfg-scale", "3", "--negative-prompt", "knit one"});
  EXPECT_EQ(guided.status, 0) << guided.err;
  EXPECT_NE(guided.out, plain);
  // Every token of this model is a byte: the last one comes again as it was.
  const ProgramResult healed = run({"--greedy", "--token-healing"});
  EXPECT_EQ(healed.status, 0) << healed.err;
  EXPECT_EQ(healed.out, plain);
  EXPECT_EQ(run({"--ban", ""}).status, 2);
  EXPECT_EQ(run({"--cfg-scale", "1000"}).status, 2);
  EXPECT_EQ(run({"--negative-prompt", "knit one"}).status, 2);
}

}  // namespace
}  // namespace bl::test
