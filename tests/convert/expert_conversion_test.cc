// Conversions of small models with routed experts.

#include <gtest/gtest.h>

#include "../model/golden.h"
#include "backend/registry.h"
#include "convert/converter.h"
#include "convert/expert_pass.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_folder.h"
#include "random_rows.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class ExpertConversion : public testing::TestWithParam<const char*> {
 protected:
  ExpertConversion() : files_(open_model_folder(model_folder(GetParam()))) {}

  ConvertReport convert(const std::string& name, double bits, const Calibration& rows) {
    const auto backend = open_backend("cpu", {.threads = 2});
    const fs::path out = root_ / name;
    fs::create_directories(out);
    const ConvertArgs args{.job = {.backend = *backend,
                                   .files = files_,
                                   .calibration = rows,
                                   .work = root_ / (name + "-job"),
                                   .source = GetParam()},
                           .measure_rows = 1};
    Converter converter(args);
    converter.quantize(bits);
    return converter.write(bits, out, std::uint64_t{1} << 30);
  }

  // The deviation of the logits from the original ones, relative to these.
  double deviation(const std::string& name) {
    const auto logits = [](const ModelFiles& files) {
      GoldenRun run("cpu", files, CacheType::kF32);
      return run.logits({random_rows(1, 40, 96).rows[0]})[0];
    };
    const std::vector<float> base = logits(files_);
    const std::vector<float> other = logits(open_model_folder(root_ / name));
    double sum = 0.0, power = 0.0;
    for (std::size_t i = 0; i < base.size(); ++i) {
      sum += (base[i] - other[i]) * (base[i] - other[i]);
      power += base[i] * base[i];
    }
    return std::sqrt(sum / power);
  }

  static std::size_t experts_in(const ConvertReport& report) {
    return static_cast<std::size_t>(std::count_if(
        report.linears.begin(), report.linears.end(),
        [](const LinearReport& one) { return one.key.find(".experts.") != std::string::npos; }));
  }

  const fs::path root_ = scratch_dir(("experts-" + case_name(GetParam())).c_str());
  const ModelFiles files_;
};

TEST_P(ExpertConversion, KeepsTheOutputTheBetterTheMoreBits) {
  const Calibration rows = random_rows(4, 64, 96);
  const ConvertReport report = convert("rough", 4.0, rows);
  convert("fine", 7.5, rows);
  EXPECT_LT(deviation("fine"), 0.3 * deviation("rough"));
  EXPECT_LT(deviation("fine"), 0.15);
  EXPECT_GT(experts_in(report), 0u);
  const ModelFiles converted = open_model_folder(root_ / "rough");
  for (const LinearReport& linear : report.linears) {
    EXPECT_EQ(format_name(load_weight_matrix(*converted.source, linear.key, {})), "exl2");
    EXPECT_FALSE(linear.key.ends_with(".gate")) << linear.key;  // the router
    EXPECT_TRUE(std::isfinite(linear.relative_error)) << linear.key;
  }
}

// With three tokens, most experts are chosen by none. They are still as good as others, since they
// get tokens that chose others.
TEST_P(ExpertConversion, ExpertsThatNoTokenChoseAreKept) {
  convert("few", 7.5, random_rows(1, 40, 3));
  EXPECT_LT(deviation("few"), 0.2);
}

INSTANTIATE_TEST_SUITE_P(Model, ExpertConversion,
                         testing::Values("hf-tiny/mixtral", "hf-tiny/qwen2-moe",
                                         "hf-tiny/qwen3-moe", "archs-tiny/olmoe",
                                         "archs-tiny/minimax-m2"),
                         [](const auto& info) { return case_name(info.param); });

}  // namespace
}  // namespace bl::test
