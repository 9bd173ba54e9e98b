// bench serve that is stopped: it ends soon, with the figures of what was done by then.

#include <gtest/gtest.h>

#include "../engine/tiny_model.h"
#include "base/json.h"
#include "program.h"

namespace bl::test {
namespace {

class BenchServe : public testing::Test {
 protected:
  // SIGINT comes when it has said that requests are done.
  static void expect_partial_figures(const std::vector<std::string>& load) {
    std::vector<std::string> words{"bench",     "serve", "-m",    make_tiny_model("serve").string(),
                                   "--backend", "ref",   "--json"};
    words.insert(words.end(), load.begin(), load.end());
    const ProgramResult result = interrupt_program(words, "requests:");
    EXPECT_EQ(result.status, 1) << result.err;
    EXPECT_TRUE(result.err.ends_with("\nbitloom: interrupted\n")) << result.err;
    const Json report = parse_json(result.out, "the report");
    EXPECT_GT(report.at("requests").get<int>(), 0);
    EXPECT_LT(report.at("requests").get<int>(), 20000);
    EXPECT_GT(report.at("generated_tokens").get<int>(), 0);
  }
};

TEST_F(BenchServe, StopsBetweenRequestsThatComeAtTimes) {
  expect_partial_figures({"-r", "20000", "--rate", "5", "-c", "4", "-p", "8", "-n", "4"});
}

// One answer of each user is under way.
TEST_F(BenchServe, StopsWithinAnswers) {
  expect_partial_figures({"-r", "20000", "-c", "2", "-p", "8", "-n", "64"});
}

// Two of nine answers, or more, are the one user's.
TEST_F(BenchServe, OneUserMayAskOtherwise) {
  const std::string model = make_tiny_model("serve-one").string();
  const std::vector<std::string> load{"bench",  "serve", "-m", model, "--backend", "ref", "-q",
                                      "--json", "-r",    "9",  "-p",  "4",         "-n",  "3"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = load;
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  const ProgramResult result = with({"-c", "3", "--one-preset", "steady"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(parse_json(result.out, "the report").at("generated_tokens"), 27);
  EXPECT_EQ(with({"-c", "1", "--one-preset", "steady"}).status, 2);
  const ProgramResult wrong = with({"-c", "3", "--one-preset", "wild"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("--one-preset"), std::string::npos) << wrong.err;
}

// On stderr, while requests are open and when none is any more.
TEST_F(BenchServe, ShowsWhatThePagesAreUsedFor) {
  const std::vector<std::string> load{
      "bench",     "serve", "-m", make_tiny_model("serve-pages").string(),
      "--backend", "ref",   "-q", "--json",
      "-r",        "400",   "-c", "2",
      "-p",        "8",     "-n", "8"};
  const auto with = [&](const char* seconds) {
    std::vector<std::string> words = load;
    words.insert(words.end(), {"--page-table", seconds});
    return run_program(words);
  };
  const ProgramResult often = with("0.01");
  EXPECT_EQ(often.status, 0) << often.err;
  EXPECT_NO_THROW(parse_json(often.out, "the report"));
  EXPECT_NE(often.err.find("\nrequest "), std::string::npos) << often.err;
  // At the end, alone.
  const ProgramResult once = with("1000");
  const std::size_t first = once.err.find(" pages of 256 tokens: ");
  ASSERT_NE(first, std::string::npos) << once.err;
  EXPECT_NE(once.err.find(" 0 in use"), std::string::npos) << once.err;
  EXPECT_EQ(once.err.find(" pages of ", first + 1), std::string::npos) << once.err;
  for (const char* wrong : {"-1", "0.001", "nan", "1e9"}) EXPECT_EQ(with(wrong).status, 2);
  EXPECT_EQ(run_program(load).err, "");
}

}  // namespace
}  // namespace bl::test
