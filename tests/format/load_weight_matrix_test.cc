// Dense matrices, stacked experts, parts of fused matrices.

#include "format/load_weight_matrix.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "format/dequantize.h"
#include "format/select_outputs.h"
#include "support/data.h"
#include "tensor_set.h"

namespace bl {
namespace {

using test::expect_error;
using test::open_set;
using test::raw;
using test::TensorSet;

std::vector<float> counting(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

float value_at(const std::vector<std::uint16_t>& matrix, std::int64_t out, std::int64_t i,
               std::int64_t c) {
  return half_to_float(matrix[static_cast<std::size_t>(i * out + c)]);
}

TEST(LoadWeightMatrix, DenseInBothOrders) {
  const SafetensorsFile file =
      open_set({{"m.weight", raw("F32", {3, 2}, counting(6))},
                {"m.bias", raw("BF16", {3}, std::vector<std::uint16_t>{0x3f80, 0, 0})}});
  const WeightMatrix plain = load_weight_matrix(file, "m", {.in = 2, .out = 3});
  EXPECT_EQ(format_name(plain), "fp32");
  EXPECT_EQ(stored_bytes(plain), 30u);
  EXPECT_EQ(bias_of(plain).view.dtype, DType::kBF16);
  const auto values = dequantize_to_half(plain);
  EXPECT_EQ(value_at(values, 3, 1, 2), 5.0f);
  EXPECT_EQ(value_at(values, 3, 0, 1), 2.0f);
  const SafetensorsFile conv = open_set({{"m.weight", raw("F32", {3, 2}, counting(6))}});
  const WeightMatrix transposed =
      load_weight_matrix(conv, "m", {.in = 3, .out = 2, .transposed = true});
  EXPECT_EQ(value_at(dequantize_to_half(transposed), 2, 2, 1), 5.0f);
  expect_error(ErrorCode::kInvalidFile, {"'m'", "fp32"},
               [&] { load_weight_matrix(conv, "m", {.in = 3, .out = 2}); });
}

TEST(LoadWeightMatrix, DenseThatBreaksTheRules) {
  expect_error(ErrorCode::kNotFound, {"'m'", ".weight", ".q_weight", ".qweight"},
               [] { load_weight_matrix(open_set({}), "m", {}); });
  expect_error(ErrorCode::kInvalidFile, {"'m.weight'", "I32", "BF16"}, [] {
    load_weight_matrix(open_set({{"m.weight", raw("I32", {1, 1}, std::vector<int>{1})}}), "m", {});
  });
  expect_error(ErrorCode::kUnsupported, {"'m.weight'", "F8_E4M3"}, [] {
    load_weight_matrix(
        open_set({{"m.weight", raw("F8_E4M3", {1, 1}, std::vector<std::uint8_t>{1})}}), "m", {});
  });
  expect_error(ErrorCode::kInvalidFile, {"'m.weight'", "1 dimensions"}, [] {
    load_weight_matrix(open_set({{"m.weight", raw("F32", {2}, counting(2))}}), "m", {});
  });
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{0, 4}, {4, 0}}) {
    expect_error(ErrorCode::kInvalidFile, {"'m.weight'", "no elements"}, [&] {
      load_weight_matrix(open_set({{"m.weight", raw("F32", shape, counting(0))}}), "m", {});
    });
  }
  expect_error(ErrorCode::kUnsupported, {"'m.weight_packed'", "compressed-tensors"}, [] {
    load_weight_matrix(open_set({{"m.weight_packed", raw("F32", {1}, counting(1))}}), "m", {});
  });
}

TEST(LoadWeightMatrix, TheHeadMayHaveAnyNumberOfFurtherRows) {
  const SafetensorsFile file = open_set({{"m.weight", raw("F32", {8, 2}, counting(16))}});
  expect_error(ErrorCode::kInvalidFile, {"8 output", "5"},
               [&] { load_weight_matrix(file, "m", {.in = 2, .out = 5}); });
  EXPECT_EQ(out_features(load_weight_matrix(file, "m", {.in = 2, .out = 5, .more_out = true})), 8);
  expect_error(ErrorCode::kInvalidFile, {"8 output", "9"},
               [&] { load_weight_matrix(file, "m", {.in = 2, .out = 9, .more_out = true}); });
  EXPECT_EQ(load_dense_matrix(file, "m.weight", {.in = 2}).out(), 8);
}

TEST(LoadWeightMatrix, StackedExperts) {
  const TensorSet set{{"e", raw("F32", {2, 3, 4}, counting(24))},
                      {"flat", raw("F32", {6, 4}, counting(24))},
                      {"b", raw("F32", {2, 3}, counting(6))}};
  const SafetensorsFile file = open_set(set);
  StackedExperts stack{.tensor = "e", .bias = "b", .experts = 2, .hints = {.in = 4, .out = 3}};
  auto experts = load_stacked_experts(file, stack);
  ASSERT_EQ(experts.size(), 2u);
  EXPECT_EQ(experts[1].weight.view.row<float>(2)[3], 23.0f);
  EXPECT_EQ(experts[1].bias.view.as<float>()[0], 3.0f);
  EXPECT_EQ(value_at(dequantize_to_half(experts[1]), 3, 3, 2), 23.0f);
  stack.tensor = "flat";
  EXPECT_EQ(load_stacked_experts(file, stack)[1].weight.view.row<float>(0)[0], 12.0f);
  stack = {
      .tensor = "e", .bias = "", .experts = 2, .hints = {.in = 3, .out = 4, .transposed = true}};
  experts = load_stacked_experts(file, stack);
  EXPECT_EQ(experts[0].out(), 4);
  EXPECT_EQ(value_at(dequantize_to_half(experts[1]), 4, 2, 3), 23.0f);
  stack.experts = 3;
  expect_error(ErrorCode::kInvalidFile, {"'e'", "[2, 3, 4]", "[3, 3, 4]"},
               [&] { load_stacked_experts(file, stack); });
  stack = {.tensor = "e", .bias = "flat", .experts = 2, .hints = {.in = 4, .out = 3}};
  expect_error(ErrorCode::kInvalidFile, {"'flat'", "[6, 4]", "[2, 3]"},
               [&] { load_stacked_experts(file, stack); });
  stack.tensor = "nothing";
  expect_error(ErrorCode::kNotFound, {"'nothing'"}, [&] { load_stacked_experts(file, stack); });
}

// The chosen columns of a dequantized matrix.
std::vector<std::uint16_t> chosen(const WeightMatrix& matrix,
                                  const std::vector<std::int32_t>& columns) {
  const auto all = dequantize_to_half(matrix);
  const auto out = static_cast<std::size_t>(out_features(matrix));
  std::vector<std::uint16_t> result;
  for (std::size_t row = 0; row < all.size(); row += out) {
    for (const std::int32_t c : columns) result.push_back(all[row + static_cast<std::size_t>(c)]);
  }
  return result;
}

void check_selection(const WeightMatrix& matrix) {
  const auto out = static_cast<std::int32_t>(out_features(matrix));
  std::vector<std::int32_t> columns(32);
  for (std::int32_t j = 0; j < 32; ++j) columns[static_cast<std::size_t>(j)] = (j * 7 + 3) % out;
  const WeightMatrix part = select_outputs(matrix, columns);
  EXPECT_EQ(out_features(part), 32);
  EXPECT_EQ(in_features(part), in_features(matrix));
  EXPECT_EQ(dequantize_to_half(part), chosen(matrix, columns));
  if (!bias_of(matrix).view.empty()) {
    for (std::size_t j = 0; j < 32; ++j) {
      EXPECT_EQ(bias_of(part).view.as<std::uint16_t>()[j],
                bias_of(matrix).view.as<std::uint16_t>()[columns[j]]);
    }
  }
  std::vector<std::int32_t> run(32);
  std::iota(run.begin(), run.end(), out - 32);
  EXPECT_EQ(dequantize_to_half(slice_outputs(matrix, out - 32, 32)), chosen(matrix, run));
  EXPECT_EQ(dequantize_to_half(slice_outputs(matrix, 0, out)), dequantize_to_half(matrix));
}

TEST(SelectOutputs, OfEveryFormat) {
  const auto folder = test::data_dir() / "format";
  const SafetensorsFile exl2(folder / "exl2.safetensors");
  const SafetensorsFile gptq(folder / "gptq.safetensors");
  check_selection(load_weight_matrix(exl2, "all-widths", {}));  // 96 columns, bias
  check_selection(load_weight_matrix(gptq, "b4-act", {}));      // 64 columns, bias
  check_selection(load_weight_matrix(gptq, "b3-act", {}));
  const SafetensorsFile dense =
      open_set({{"m.weight", raw("F32", {40, 48}, counting(1920))},
                {"m.bias", raw("F16", {40}, std::vector<std::uint16_t>(40, 0x3c00))},
                {"t.weight", raw("F32", {48, 40}, counting(1920))}});
  check_selection(load_weight_matrix(dense, "m", {}));
  check_selection(load_weight_matrix(dense, "t", {.transposed = true}));
}

TEST(SelectOutputs, Exl2OnlyInMultiplesOf32) {
  const SafetensorsFile file(test::data_dir() / "format" / "exl2.safetensors");
  const WeightMatrix matrix = load_weight_matrix(file, "all-widths", {});
  expect_error(ErrorCode::kUnsupported, {"'all-widths'", "33"},
               [&] { slice_outputs(matrix, 0, 33); });
}

TEST(WeightMatrix, StoredBytesAreThoseOfTheFile) {
  const auto folder = test::data_dir() / "format";
  for (const auto& [file_name, key] :
       {std::pair("exl2.safetensors", "all-widths"), std::pair("gptq.safetensors", "b3-act")}) {
    const SafetensorsFile file(folder / file_name);
    std::uint64_t bytes = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      if (entry.name.starts_with(std::string(key) + ".")) bytes += entry.bytes();
    }
    EXPECT_EQ(stored_bytes(load_weight_matrix(file, key, {})), bytes) << key;
  }
}

}  // namespace
}  // namespace bl
