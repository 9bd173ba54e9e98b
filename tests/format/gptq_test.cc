// The test vectors of docs/formats/gptq.md §14, and every row of its tables of checks
// (docs/formats/gptq.md §5.4, §12, §13).

#include "format/gptq.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "format/bit_codec.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "tensor_set.h"

namespace bl {
namespace {

using test::expect_error;
using test::open_set;
using test::raw;
using test::TensorSet;

// 4 bits, 32 × 32, one group (docs/formats/gptq.md §14.1).
TensorSet vector_set() {
  std::vector<std::uint32_t> qweight(4 * 32), qzeros(4);
  for (int c = 0; c < 32; ++c) {
    for (int i = 0; i < 32; ++i) {
      write_code(qweight.data() + c, 32, i, 4, static_cast<std::uint32_t>(3 * i + 5 * c + 1) % 16);
    }
    write_code(qzeros.data(), 1, c, 4, static_cast<std::uint32_t>(7 * c + 2) % 16);
  }
  return {{"m.qweight", raw("I32", {4, 32}, qweight)},
          {"m.qzeros", raw("I32", {1, 4}, qzeros)},
          {"m.scales", raw("F16", {1, 32}, std::vector<std::uint16_t>(32, 0x224c))}};
}

// 4 bits, 64 × 32, two groups, symmetric, g_idx present.
TensorSet two_group_gptq() {
  std::vector<std::int32_t> g_idx(64);
  for (std::size_t i = 0; i < 64; ++i) g_idx[i] = i < 32 ? 0 : 1;
  return {{"m.qweight", raw("I32", {8, 32}, std::vector<std::uint32_t>(8 * 32, 0x89abcdef))},
          {"m.qzeros", raw("I32", {2, 4}, std::vector<std::uint32_t>(8, 0x77777777))},
          {"m.scales", raw("F16", {2, 32}, std::vector<std::uint16_t>(64, 0x3c00))},
          {"m.g_idx", raw("I32", {64}, g_idx)}};
}

TEST(Gptq, TestVectors) {
  const SafetensorsFile file = open_set(vector_set());
  const GptqMatrix matrix = load_gptq_matrix(file, "m", nullptr);
  EXPECT_EQ(matrix.qweight[0], 0x630da741u);
  EXPECT_EQ(matrix.qweight[1], 0xb852fc96u);
  EXPECT_EQ(matrix.qweight[32 + 1], 0x30da741eu);
  const auto values = dequantize_to_half(matrix);
  EXPECT_EQ(values[0 * 32 + 0], 0xa64c);
  EXPECT_EQ(values[1 * 32 + 0], 0x224c);
  EXPECT_EQ(values[9 * 32 + 1], 0xaf16);
  EXPECT_EQ(values[31 * 32 + 2], 0x2d82);
}

TEST(Gptq, ScalesOfOtherFloatsAreRoundedToHalf) {
  TensorSet set = vector_set();
  // 0x3c4c as BF16 is 0.01245117, exact in binary16: 0x2260.
  set["m.scales"] = raw("BF16", {1, 32}, std::vector<std::uint16_t>(32, 0x3c4c));
  EXPECT_EQ(load_gptq_matrix(open_set(set), "m", nullptr).scales[5], 0x2260);
  set["m.scales"] = raw("F32", {1, 32}, std::vector<float>(32, 0.1f));
  EXPECT_EQ(load_gptq_matrix(open_set(set), "m", nullptr).scales[5], 0x2e66);
  set["m.scales"] = raw("F32", {1, 32}, std::vector<float>(32, 1e6f));
  expect_error(ErrorCode::kInvalidFile, {"'m.scales'", "finite", "column 0"},
               [&] { load_gptq_matrix(open_set(set), "m", nullptr); });
  set["m.scales"] = raw("F16", {1, 32}, std::vector<std::uint16_t>(32, 0x7e00));
  expect_error(ErrorCode::kInvalidFile, {"'m.scales'", "finite"},
               [&] { load_gptq_matrix(open_set(set), "m", nullptr); });
}

void expect_rejected(const std::vector<std::string>& parts, void (*spoil)(TensorSet&, GptqConfig&),
                     ErrorCode code = ErrorCode::kInvalidFile) {
  TensorSet set = two_group_gptq();
  GptqConfig config;
  config.file = "config.json";
  spoil(set, config);
  expect_error(code, parts, [&] { load_weight_matrix(open_set(set), "m", {.gptq = &config}); });
}

TEST(Gptq, RejectsWrongTypesAndShapes) {
  expect_rejected({"'m.qweight'", "I32"},
                  [](TensorSet& s, GptqConfig&) { s["m.qweight"].dtype = "F32"; });
  expect_rejected({"'m.qweight'", "no elements"}, [](TensorSet& s, GptqConfig&) {
    s["m.qweight"] = raw("I32", {8, 0}, std::vector<std::int32_t>{});
  });
  expect_rejected({"'m.qweight'", "no elements"}, [](TensorSet& s, GptqConfig&) {
    s["m.qweight"] = raw("I32", {0, 32}, std::vector<std::int32_t>{});
  });
  expect_rejected({"'m.qzeros'", "dimensions"},
                  [](TensorSet& s, GptqConfig&) { s["m.qzeros"].shape = {8}; });
  expect_rejected({"'m.qzeros'", "rows"}, [](TensorSet& s, GptqConfig&) {
    s["m.qzeros"].shape = {1, 8};
  });
  expect_rejected({"'m.scales'", "64", "32"}, [](TensorSet& s, GptqConfig&) {
    s["m.scales"].shape = {1, 64};
  });
  expect_rejected({"'m.scales'", "I16"},
                  [](TensorSet& s, GptqConfig&) { s["m.scales"].dtype = "I16"; });
  expect_rejected({"'m.g_idx'", "63", "64"}, [](TensorSet& s, GptqConfig&) {
    s["m.g_idx"] = raw("I32", {63}, std::vector<std::int32_t>(63, 1));
  });
  expect_rejected(
      {"no tensor 'm.qzeros'"}, [](TensorSet& s, GptqConfig&) { s.erase("m.qzeros"); },
      ErrorCode::kNotFound);
}

TEST(Gptq, RejectsWidthsThatDoNotExist) {
  expect_rejected(
      {"'m.qzeros'", "5-bit", "planar"},
      [](TensorSet& s, GptqConfig&) {
        s["m.qzeros"] = raw("I32", {2, 5}, std::vector<std::uint32_t>(10));
      },
      ErrorCode::kUnsupported);
  expect_rejected({"'m.qzeros'", "1 bits"}, [](TensorSet& s, GptqConfig&) {
    s["m.qzeros"] = raw("I32", {2, 1}, std::vector<std::uint32_t>(2));
  });
  expect_rejected({"'m.qzeros'", "33 words"}, [](TensorSet& s, GptqConfig&) {
    s["m.qzeros"] = raw("I32", {2, 33}, std::vector<std::uint32_t>(66));
  });
  expect_rejected({"'m.qzeros'", "0 words"}, [](TensorSet& s, GptqConfig&) {
    s["m.qzeros"] = raw("I32", {2, 0}, std::vector<std::uint32_t>{});
  });
  expect_rejected({"'m.qzeros'", "4 bits", "config.json says 8"},
                  [](TensorSet&, GptqConfig& config) { config.bits = 8; });
  expect_rejected({"'m.qweight'", "3-bit"}, [](TensorSet& s, GptqConfig&) {
    s["m.qzeros"] = raw("I32", {2, 3}, std::vector<std::uint32_t>(6));
  });
}

TEST(Gptq, RejectsWrongGroups) {
  expect_rejected({"'m.scales'", "2 groups", "group_size 16", "4"},
                  [](TensorSet&, GptqConfig& config) { config.group_size = 16; });
  expect_rejected({"'m.scales'", "group_size -1"},
                  [](TensorSet&, GptqConfig& config) { config.group_size = -1; });
  expect_rejected({"'m.g_idx'", "entry 3 is 2", "0 to 1"},
                  [](TensorSet& s, GptqConfig&) { s["m.g_idx"].bytes[12] = std::byte{2}; });
  expect_rejected({"'m.g_idx'", "entry 0 is -1"}, [](TensorSet& s, GptqConfig&) {
    for (std::size_t i = 0; i < 4; ++i) s["m.g_idx"].bytes[i] = std::byte{255};
  });
  expect_rejected({"'m.g_idx'", "group 1 has 33", "group 0 has 31"},
                  [](TensorSet& s, GptqConfig&) { s["m.g_idx"].bytes[0] = std::byte{1}; });
  expect_rejected({"'m.qweight'", "no g_idx", "desc_act"}, [](TensorSet& s, GptqConfig& config) {
    s.erase("m.g_idx");
    config.act_order = true;
  });
  // More groups than channels, and a number of groups that divides nothing.
  expect_rejected({"groups"}, [](TensorSet& s, GptqConfig&) {
    s["m.qzeros"] = raw("I32", {65, 4}, std::vector<std::uint32_t>(65 * 4));
    s["m.scales"] = raw("F16", {65, 32}, std::vector<std::uint16_t>(65 * 32));
  });
  expect_rejected({"'m.scales'", "33 groups"}, [](TensorSet& s, GptqConfig&) {
    s.erase("m.g_idx");
    s["m.qzeros"] = raw("I32", {33, 4}, std::vector<std::uint32_t>(33 * 4));
    s["m.scales"] = raw("F16", {33, 32}, std::vector<std::uint16_t>(33 * 32));
  });
}

TEST(Gptq, GroupSizesComeFromTheTensorsWhereNothingElseSays) {
  const auto load = [](std::int64_t groups, std::vector<std::int32_t> g_idx) {
    const auto rows = static_cast<std::size_t>(groups);
    TensorSet set{{"m.qweight", raw("I32", {12, 8}, std::vector<std::uint32_t>(96))},
                  {"m.qzeros", raw("I32", {groups, 1}, std::vector<std::uint32_t>(rows))},
                  {"m.scales", raw("F16", {groups, 8}, std::vector<std::uint16_t>(8 * rows))}};
    if (!g_idx.empty()) set["m.g_idx"] = raw("I32", {96}, g_idx);
    return load_gptq_matrix(open_set(set), "m", nullptr).group_of;
  };
  const auto sequential = [](std::int32_t size) {
    std::vector<std::int32_t> groups(96);
    for (std::int32_t i = 0; i < 96; ++i) groups[static_cast<std::size_t>(i)] = i / size;
    return groups;
  };
  EXPECT_EQ(load(3, {}), sequential(32));
  EXPECT_EQ(load(2, {}), sequential(64));  // the last is short
  EXPECT_EQ(load(1, {}), sequential(96));
  EXPECT_EQ(load(2, sequential(64)), sequential(64));
  EXPECT_EQ(load(2, sequential(48)), sequential(48));
  EXPECT_EQ(load(4, sequential(24)), sequential(24));
}

TEST(Gptq, RejectsTheLayoutOfAwq) {
  expect_rejected(
      {"'m.qweight'", "AWQ"},
      [](TensorSet& s, GptqConfig&) {
        s["m.qweight"] = raw("I32", {64, 4}, std::vector<std::uint32_t>(64 * 4));
        s.erase("m.g_idx");
      },
      ErrorCode::kUnsupported);
}

TEST(Gptq, ZeroPointsOfWronglyTaggedSymmetricFilesAreTrusted) {
  TensorSet set = two_group_gptq();
  GptqConfig config;
  config.symmetric = true;
  EXPECT_EQ(load_gptq_matrix(open_set(set), "m", &config).zeros[0], 8);
  config.v2 = true;
  EXPECT_EQ(load_gptq_matrix(open_set(set), "m", &config).zeros[0], 8);
  config.symmetric = false;  // an asymmetric file may hold any constant
  EXPECT_EQ(load_gptq_matrix(open_set(set), "m", &config).zeros[0], 7);
  set["m.qzeros"].bytes[0] = std::byte{0x76};  // no longer constant: the tag counts
  config.symmetric = true;
  EXPECT_EQ(load_gptq_matrix(open_set(set), "m", &config).zeros[1], 7);
}

TEST(Gptq, AnAllZeroBiasThatNobodyExpectsIsDropped) {
  TensorSet set = two_group_gptq();
  set["m.bias"] = raw("F16", {32}, std::vector<std::uint16_t>(32));
  EXPECT_TRUE(
      bias_of(load_weight_matrix(open_set(set), "m", {.bias = BiasRule::kNone})).view.empty());
  EXPECT_FALSE(bias_of(load_weight_matrix(open_set(set), "m", {})).view.empty());
  set["m.bias"].bytes[7] = std::byte{1};
  expect_error(ErrorCode::kInvalidFile, {"'m.bias'"},
               [&] { load_weight_matrix(open_set(set), "m", {.bias = BiasRule::kNone}); });
}

TEST(Gptq, InputsAndOutputsMustFit) {
  const SafetensorsFile file = open_set(two_group_gptq());
  EXPECT_EQ(in_features(load_weight_matrix(file, "m", {.in = 64, .out = 32})), 64);
  expect_error(ErrorCode::kInvalidFile, {"'m'", "64", "128"},
               [&] { load_weight_matrix(file, "m", {.in = 128, .out = 32}); });
  expect_error(ErrorCode::kInvalidFile, {"'m'", "32", "31"},
               [&] { load_weight_matrix(file, "m", {.in = 64, .out = 31}); });
}

}  // namespace
}  // namespace bl
