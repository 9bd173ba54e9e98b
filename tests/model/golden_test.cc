// Logits of tiny random models against those of transformers: one case a folder, so that adding an
// architecture is one JSON and one golden.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "model/golden.h"

namespace bl::test {
namespace {

class HfTiny : public testing::TestWithParam<std::string> {};

std::string case_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

void expect_close(const std::vector<float>& logits, const std::vector<float>& golden,
                  double tolerance) {
  ASSERT_EQ(logits.size(), golden.size());
  EXPECT_LE(largest_difference(logits, golden), tolerance * std::max(1.0, deviation(golden)));
}

TEST_P(HfTiny, RefEqualsTransformers) {
  const Golden golden(golden_folder("hf-tiny") / GetParam());
  GoldenRun run("ref", golden.folder(), CacheType::kF32);
  for (const GoldenPrompt& prompt : golden.prompts()) {
    expect_close(run.logits({prompt.ids})[0], prompt.logits, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, HfTiny, testing::ValuesIn(golden_names("hf-tiny")), case_name);

}  // namespace
}  // namespace bl::test
