// Configurations that an earlier version computed wrongly without a word: each is computed as
// transformers does, or refused by name.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "format/safetensors_folder.h"
#include "model/golden.h"
#include "support/data.h"

namespace bl::test {
namespace {

struct Report {
  const char* name;
  const char* refusal;               // a part of the message; nullptr: it is computed
  std::vector<std::string> unknown;  // keys that are named in a warning
};

class ConfigReports : public testing::TestWithParam<Report> {};

TEST_P(ConfigReports, FollowTransformersOrAreRefused) {
  const Report& report = GetParam();
  const std::filesystem::path folder = shared_dir() / "reports" / report.name;
  if (shared_dir().empty() || !std::filesystem::exists(folder)) {
    GTEST_SKIP() << "no folder reports/" << report.name << " below BITLOOM_DATA";
  }
  if (report.refusal != nullptr) {
    try {
      GoldenRun("ref", folder, CacheType::kF32);
      FAIL() << "was not refused";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(report.refusal), std::string::npos) << e.what();
    }
    return;
  }
  const auto ids = read_json_file(folder / "ids.json").get<std::vector<std::int32_t>>();
  const auto expected =
      values_of<float>(SafetensorsFolder(folder / "expected.safetensors"), "logits");
  GoldenRun run("ref", folder, CacheType::kF32);
  EXPECT_EQ(run.model().spec().unknown_keys, report.unknown);
  const std::vector<float> logits = run.logits({ids})[0];
  ASSERT_EQ(logits.size(), expected.size());
  EXPECT_LE(largest_difference(logits, expected), 1e-4 * std::max(1.0, deviation(expected)));
}

INSTANTIATE_TEST_SUITE_P(
    Model, ConfigReports,
    testing::Values(Report{"absent-key-has-the-default-of-its-class", nullptr, {}},
                    Report{"bloom-residual-post-layernorm",
                           "apply_residual_connection_post_layernorm is true",
                           {}},
                    Report{"gemma-hidden-act", nullptr, {}},
                    Report{"gpt-oss-swiglu-alpha", "swiglu_alpha is 1", {}},
                    Report{"is-causal-false", "is_causal is false", {}},
                    Report{"null-softcap-is-not-the-default", nullptr, {}},
                    Report{"rope-scaling-beside-rope-parameters",
                           nullptr,
                           {"rope_parameters.rope_theta", "rope_parameters.rope_type"}},
                    Report{"smollm3-sliding-window", nullptr, {}},
                    Report{"tied-head-loses-its-bias", nullptr, {}},
                    Report{
                        "unknown-config-keys", nullptr, {"made_up_option", "use_fancy_attention"}}),
    [](const auto& info) { return case_name(info.param.name); });

}  // namespace
}  // namespace bl::test
