// tests/data/format (tools/make_format_goldens.py): widths, orders, zero points and corners that
// the reference models do not have, against an oracle of their own.

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_file.h"
#include "support/data.h"

namespace bl {
namespace {

void compare(const SafetensorsFile& file, const std::string& name, const GptqConfig* config) {
  SCOPED_TRACE(name);
  const WeightMatrix matrix = load_weight_matrix(file, name, {.gptq = config});
  const HostArray expected = file.read("dq." + name);
  ASSERT_EQ(in_features(matrix), expected.view.shape[0]);
  ASSERT_EQ(out_features(matrix), expected.view.shape[1]);
  const auto actual = dequantize_to_half(matrix);
  const auto* bits = expected.view.as<const std::uint16_t>();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) wrong += actual[i] != bits[i];
  EXPECT_EQ(wrong, 0u);
}

TEST(FormatCases, EveryCaseDecodesAsTheOracleSays) {
  const auto folder = test::data_dir() / "format";
  const Json cases = read_json_file(folder / "cases.json");
  const SafetensorsFile exl2(folder / "exl2.safetensors");
  const SafetensorsFile gptq(folder / "gptq.safetensors");
  int count = 0;
  for (const auto& [name, about] : cases.items()) {
    ++count;
    if (about.at("format") == "exl2") {
      compare(exl2, name, nullptr);
      continue;
    }
    std::optional<GptqConfig> config;
    if (!about.at("config").is_null()) {
      Json document;
      document["quantization_config"] = about.at("config");
      config = read_gptq_config({}, document);
      ASSERT_TRUE(config.has_value());
    }
    compare(gptq, name, config ? &*config : nullptr);
  }
  EXPECT_GE(count, 50);
}

}  // namespace
}  // namespace bl
