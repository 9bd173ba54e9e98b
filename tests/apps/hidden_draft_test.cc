// --draft with layers that read the model's hidden states: the same text, and errors that say why.

#include <gtest/gtest.h>

#include "../engine/tiny_model.h"
#include "base/json.h"
#include "program.h"

namespace bl::test {
namespace {

class HiddenDraftCommands : public testing::Test {
 protected:
  ProgramResult run(const std::vector<std::string>& more, const char* command = "run") const {
    std::vector<std::string> words{command};
    if (std::string(command) == "run") {
      words.insert(words.end(), {"-m", model_, "--backend", "cpu", "-p", "to be or not to be", "-n",
                                 "24", "--ctx", "256"});
    } else {
      words.insert(words.end(), {model_, "--backend", "cpu"});
    }
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  static void expect_error(const ProgramResult& result, const std::string& part) {
    EXPECT_NE(result.status, 0) << result.out;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
  const std::string model_ = make_tiny_model("draft-target").string();
};

TEST_F(HiddenDraftCommands, TheTextIsTheSame) {
  const std::string draft = make_tiny_draft("draft-layers").string();
  for (const char* temperature : {"0", "1"}) {
    const std::vector<std::string> words{"--temperature", temperature, "--seed", "5"};
    const ProgramResult plain = run(words);
    ASSERT_EQ(plain.status, 0) << plain.err;
    EXPECT_FALSE(plain.out.empty());
    std::vector<std::string> with = words;
    with.insert(with.end(), {"--draft", draft, "--draft-tokens", "3"});
    const ProgramResult drafted = run(with);
    ASSERT_EQ(drafted.status, 0) << drafted.err;
    EXPECT_EQ(drafted.out, plain.out);
    EXPECT_NE(drafted.err.find("drafted tokens accepted"), std::string::npos) << drafted.err;
  }
}

TEST_F(HiddenDraftCommands, WhatDoesNotFitIsSaid) {
  expect_error(run({"--draft", "mtp"}), "no layers for multi-token prediction");
  const std::string other =
      make_tiny_draft("draft-of-another", R"("num_target_layers": 36,)").string();
  expect_error(run({"--draft", other}), "a model of 36 layers");
  expect_error(run_program({"run", "-m", other, "-p", "x"}), "--draft");
}

TEST_F(HiddenDraftCommands, InspectCountsThem) {
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"--json", "--ctx", "256"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run(words, "inspect");
    EXPECT_EQ(result.status, 0) << result.err;
    return parse_json(result.out, "stdout")["plan"];
  };
  const Json without = plan({});
  const Json with = plan({"--draft", make_tiny_draft("draft-inspected").string()});
  EXPECT_GT(with["weights"].get<int>(), without["weights"].get<int>());
  // One layer beside two of its size.
  EXPECT_EQ(with["cache"].get<int>() * 2, without["cache"].get<int>() * 3);
  EXPECT_EQ(run({"--draft", model_}, "inspect").status, 2);
}

}  // namespace
}  // namespace bl::test
