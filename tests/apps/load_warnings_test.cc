// What is said while a model is loaded.

#include <gtest/gtest.h>

#include "../engine/tiny_model.h"
#include "program.h"

namespace bl::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What `run` with these options writes to stderr.
std::string said(const std::filesystem::path& model, std::vector<std::string> options) {
  std::vector<std::string> words{"run", "-m", model, "-p", "a", "-n", "1", "--greedy"};
  words.insert(words.end(), options.begin(), options.end());
  const ProgramResult result = run_program(words);
  EXPECT_EQ(result.status, 0) << result.err;
  return result.err;
}

constexpr const char* kOutliers = "the keys of this model have outliers";

TEST(LoadWarnings, QuantizedKeysWithOutliers) {
  const auto model = make_biased_model("outliers", 300);
  const std::string text = said(model, {"--cache", "q4", "-q"});
  EXPECT_TRUE(contains(text, std::string("bitloom: warning: --cache q4: ") + kOutliers)) << text;
  EXPECT_TRUE(contains(text, "(up to 30")) << text;  // the bias and what is added to it
  EXPECT_TRUE(contains(text, "better: --cache fp16")) << text;
  EXPECT_TRUE(contains(said(model, {"--cache", "fp8"}), kOutliers));
  EXPECT_FALSE(contains(said(model, {"--cache", "fp16"}), kOutliers));
  EXPECT_FALSE(contains(said(model, {}), kOutliers));
}

TEST(LoadWarnings, EightBitsWhereTheyAreEnough) {
  const std::string text = said(make_biased_model("outliers", 20), {"--cache", "q4"});
  EXPECT_TRUE(contains(text, "better: --cache q8,q4\n")) << text;
}

TEST(LoadWarnings, NoneForOrdinaryKeysOrMeasurements) {
  EXPECT_FALSE(contains(said(make_biased_model("plain", 0), {"--cache", "q6"}), kOutliers));
  const ProgramResult bench = run_program({"bench", "-m", make_biased_model("outliers", 300),
                                           "--cache", "q4", "-p", "4", "-n", "1", "-r", "1"});
  EXPECT_EQ(bench.status, 0) << bench.err;
  EXPECT_FALSE(contains(bench.err, kOutliers)) << bench.err;
}

TEST(LoadWarnings, ContextsBeyondTheTrainedLength) {
  const auto model = make_tiny_model("trained");
  const std::string text = said(model, {"--ctx", "4096"});
  EXPECT_TRUE(contains(text,
                       "warning: --ctx 4096: the model was trained for 1024 tokens; 4096 of "
                       "them need --rope-alpha 4 (or --rope-scale 4, or \"rope_scaling\" in "))
      << text;
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{},
                                             {"--ctx", "1024"},
                                             {"--ctx", "4096", "--rope-alpha", "4"},
                                             {"--ctx", "4096", "--rope-scale", "4"}}) {
    EXPECT_FALSE(contains(said(model, options), "trained for")) << options.size();
  }
}

}  // namespace
}  // namespace bl::test
