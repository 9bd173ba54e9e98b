// Matrices as the reference dequantizes them, bit for bit.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/json.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_folder.h"
#include "support/data.h"

namespace bl {
namespace {

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, MatricesAreEqualToTheBit) {
  const auto folder = test::unpacked("exl2-gptq") / GetParam();
  const SafetensorsFile golden(folder / "golden.safetensors");
  const SafetensorsFile model(folder / (std::string(GetParam()).starts_with("exl2")
                                            ? "output.safetensors"
                                            : "model.safetensors"));
  const auto config = read_gptq_config(folder, read_json_file(folder / "config.json"));
  int compared = 0;
  for (const std::string& name : golden.names()) {
    if (!name.starts_with("dq.")) continue;
    SCOPED_TRACE(name);
    const HostArray expected = golden.read(name);
    const WeightMatrix matrix =
        load_weight_matrix(model, name.substr(3), {.gptq = config ? &*config : nullptr});
    ASSERT_EQ(in_features(matrix), expected.view.shape[0]);
    ASSERT_EQ(out_features(matrix), expected.view.shape[1]);
    const std::vector<std::uint16_t> actual = dequantize_to_half(matrix);
    const auto* bits = expected.view.as<const std::uint16_t>();
    long wrong = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) wrong += actual[i] != bits[i];
    EXPECT_EQ(wrong, 0);
    ++compared;
  }
  EXPECT_GE(compared, 7);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         testing::Values("exl2-4bit", "exl2-5-3", "exl2-all-widths", "exl2-high",
                                         "exl2-low", "gptq-4bit-g128", "gptq-4bit-g32-actorder",
                                         "gptq-4bit-g64-asym"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace bl
