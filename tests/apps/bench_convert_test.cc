// bench convert: figures for each phase, and nothing left behind.

#include <gtest/gtest.h>

#include "../engine/tiny_model.h"
#include "base/json.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

TEST(BenchConvert, TimesEveryPhaseAndLeavesNothing) {
  const fs::path work = scratch_dir("bench-convert-work");
  const ProgramResult result = run_program(
      {"bench", "convert", "-m", make_tiny_model("bench-convert").string(), "-b", "4.5,6", "-r",
       "2", "-l", "32", "--work", work.string(), "--backend", "cpu", "--json", "-q"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json report = parse_json(result.out, "the report");
  EXPECT_EQ(report.at("tokens"), 3 * 32);
  EXPECT_GT(report.at("measure_seconds").get<double>(), 0.0);
  ASSERT_EQ(report.at("rates").size(), 2u);
  EXPECT_EQ(report.at("rates")[1].at("bits"), 6.0);
  EXPECT_GT(report.at("rates")[1].at("seconds").get<double>(), 0.0);
  EXPECT_TRUE(fs::is_empty(work));
}

TEST(BenchConvert, NeedsOneModel) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"bench", "convert"},
        {"bench", "convert", "-m", "a", "--random", "llama3-8b"},
        {"bench", "convert", "-m", "a", "--layers", "2"}}) {
    EXPECT_EQ(run_program(words).status, 2);
  }
}

}  // namespace
}  // namespace bl::test
