#include "format/gguf_dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "format/gguf_file.h"
#include "support/data.h"

namespace bl::test {
namespace {

std::vector<float> values_of(const GgufTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
  dequantize_gguf(tensor.type, tensor.bytes, values);
  return values;
}

// groups.gguf: random groups of every type, and what the Python package gguf makes of them.
TEST(GgufDequantize, EqualsTheReferenceBitForBit) {
  const auto file = GgufFile::open(unpacked("gguf") / "groups.gguf");
  int types = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    const GgufTensor* expected = file->find_tensor(tensor.name + ".expected");
    if (expected == nullptr) continue;
    ++types;
    EXPECT_EQ(info_of(tensor.type).name, tensor.name);
    const std::vector<float> values = values_of(tensor);
    const std::vector<float> wanted = values_of(*expected);
    ASSERT_EQ(values.size(), wanted.size());
    std::size_t different = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      // A zero scale gives either zero.
      different += values[i] != wanted[i] ? 1 : 0;
    }
    EXPECT_EQ(different, 0u) << tensor.name;
  }
  EXPECT_EQ(types, 16);
}

TEST(GgufDequantize, RoundsAsTheScalarConversion) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0xffffffffu - 70001u; bits += 70001u) {
    values.push_back(std::bit_cast<float>(bits));
  }
  for (std::uint32_t half = 0; half < 0x10000u; ++half) {
    const float value = half_to_float(static_cast<std::uint16_t>(half));
    values.push_back(value);
    values.push_back(std::nextafter(value, 0.0f));
    values.push_back(std::nextafter(value, std::numeric_limits<float>::infinity()));
  }
  std::vector<Half> halves(values.size());
  round_to_half(values, halves);
  std::size_t different = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      different += std::isnan(static_cast<float>(halves[i])) ? 0 : 1;
    } else {
      different += halves[i].bits != float_to_half(values[i]) ? 1 : 0;
    }
  }
  EXPECT_EQ(different, 0u);
}

TEST(GgufDequantize, SaysWhetherValuesFit) {
  std::vector<Half> halves(1);
  const auto fits = [&](float value) { return round_to_half(std::vector<float>{value}, halves); };
  EXPECT_TRUE(fits(65504));
  EXPECT_TRUE(fits(65519));
  EXPECT_FALSE(fits(65520));
  EXPECT_FALSE(fits(-1e30f));
  EXPECT_TRUE(fits(std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(fits(std::numeric_limits<float>::quiet_NaN()));
}

}  // namespace
}  // namespace bl::test
