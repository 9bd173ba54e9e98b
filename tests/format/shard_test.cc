// Parts of a matrix put together again are the matrix, bit for bit.

#include "format/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "format/dequantize.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_folder.h"
#include "format/select_inputs.h"
#include "support/data.h"
#include "support/random_matrix.h"
#include "tensor_set.h"

namespace bl {
namespace {

using test::expect_error;
using Features = std::vector<std::int32_t>;
using Halves = std::vector<std::uint16_t>;

// How many parts the features of a matrix have at most, said apart from the code under test.
std::int64_t most_parts(const WeightMatrix& matrix, ShardRule rule, std::int64_t out) {
  const bool inputs = rule == ShardRule::kSplitIn;
  if (std::holds_alternative<Exl2Matrix>(matrix)) {
    return inputs ? in_features(matrix) / 32 : (out + 31) / 32;
  }
  const auto* gptq = std::get_if<GptqMatrix>(&matrix);
  if (gptq == nullptr || !inputs) return inputs ? in_features(matrix) : out;
  return gptq->in / (gptq->bits == 2 ? 16 : gptq->bits == 3 ? 32 : gptq->bits == 4 ? 8 : 4);
}

Features share_of(const WeightMatrix& matrix, ShardRule rule, std::int64_t out, Share share) {
  return rule == ShardRule::kSplitIn ? input_share(matrix, share)
                                     : output_share(matrix, out, share);
}

// Every element of the part where the whole has it; those that the part holds are counted.
void compare_part(const Halves& whole, const WeightMatrix& matrix, const MatrixCut& cut,
                  std::vector<int>& seen) {
  const WeightMatrix part = cut_matrix(matrix, cut);
  const bool inputs = cut.rule == ShardRule::kSplitIn;
  const auto out = static_cast<std::size_t>(out_features(matrix));
  const auto part_out = static_cast<std::size_t>(out_features(part));
  const std::size_t count = cut.features.size();
  ASSERT_EQ(static_cast<std::size_t>(inputs ? in_features(part) : out_features(part)), count);
  ASSERT_EQ(inputs ? out_features(part) : in_features(part),
            inputs ? out_features(matrix) : in_features(matrix));
  const Halves values = dequantize_to_half(part);
  long wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::size_t row = i / part_out;
    std::size_t column = i % part_out;
    std::size_t& cut_one = inputs ? row : column;
    cut_one = static_cast<std::size_t>(cut.features[cut_one]);
    wrong += values[i] != whole[row * out + column];
  }
  EXPECT_EQ(wrong, 0);
  for (const std::int32_t feature : cut.features) ++seen[static_cast<std::size_t>(feature)];
  const WeightMatrix layout = cut_matrix(matrix, cut, CodeCopy::kLeftOut);
  EXPECT_EQ(in_features(layout), in_features(part));
  EXPECT_EQ(out_features(layout), out_features(part));
}

void check_shards(const WeightMatrix& matrix, std::int64_t out) {
  const Halves whole = dequantize_to_half(matrix);
  for (const ShardRule rule : {ShardRule::kSplitOut, ShardRule::kSplitIn}) {
    const bool inputs = rule == ShardRule::kSplitIn;
    for (const int count : {1, 2, 3, 5, 8}) {
      SCOPED_TRACE((inputs ? "inputs in " : "outputs in ") + std::to_string(count));
      if (most_parts(matrix, rule, out) < count) {
        expect_error(ErrorCode::kUnsupported, {name_of(matrix), "into " + std::to_string(count)},
                     [&] {
                       share_of(matrix, rule, out, {0, count});
                     });
        continue;
      }
      std::vector<int> seen(
          static_cast<std::size_t>(inputs ? in_features(matrix) : out_features(matrix)), 0);
      std::size_t least = seen.size();
      std::size_t most = 0;
      for (int i = 0; i < count; ++i) {
        const MatrixCut cut{rule, share_of(matrix, rule, out, {i, count})};
        least = std::min(least, cut.features.size());
        most = std::max(most, cut.features.size());
        compare_part(whole, matrix, cut, seen);
      }
      const auto wanted = inputs ? seen.end() : seen.begin() + out;
      EXPECT_TRUE(std::all_of(seen.begin(), wanted, [](int times) { return times == 1; }));
      EXPECT_TRUE(std::all_of(wanted, seen.end(), [](int times) { return times <= 1; }));
      // Ranges differ by one unit, and the last may be short of another.
      EXPECT_TRUE(std::holds_alternative<Exl2Matrix>(matrix) || most - least < 64u);
    }
  }
}

TEST(Shard, GoldenMatrices) {
  const auto folder = test::data_dir() / "format";
  int checked = 0;
  for (const char* file_name : {"exl2.safetensors", "gptq.safetensors"}) {
    const SafetensorsFile file(folder / file_name);
    for (const SafetensorsEntry& entry : file.entries()) {
      const bool exl2 = entry.name.ends_with(".q_weight");
      if (!exl2 && !entry.name.ends_with(".qweight")) continue;
      const std::string key = entry.name.substr(0, entry.name.rfind('.'));
      SCOPED_TRACE(key);
      const WeightMatrix matrix = load_weight_matrix(file, key, {});
      check_shards(matrix, out_features(matrix));
      if (exl2) check_shards(matrix, out_features(matrix) - 7);  // with padding
      ++checked;
    }
  }
  EXPECT_GE(checked, 8);
}

class ShardsOfModel : public testing::TestWithParam<const char*> {};

TEST_P(ShardsOfModel, AreTheMatrices) {
  const auto folder = test::unpacked("exl2-gptq") / GetParam();
  const SafetensorsFolder model(folder);
  const auto config = read_gptq_config(folder, read_json_file(folder / "config.json"));
  int checked = 0;
  for (const char* module :
       {"self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"}) {
    SCOPED_TRACE(module);
    const WeightMatrix matrix = load_weight_matrix(model, std::string("model.layers.0.") + module,
                                                   {.gptq = config ? &*config : nullptr});
    check_shards(matrix, out_features(matrix));
    ++checked;
  }
  EXPECT_EQ(checked, 4);
}

INSTANTIATE_TEST_SUITE_P(Models, ShardsOfModel,
                         testing::Values("exl2-4bit", "exl2-5-3", "exl2-all-widths",
                                         "gptq-4bit-g128", "gptq-4bit-g32-actorder",
                                         "gptq-4bit-g64-asym"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Shard, RandomMatrices) {
  test::Engine random(5);
  for (const auto& [in, out] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 5}, {33, 100}, {96, 31}, {257, 129}}) {
    for (const bool transposed : {false, true}) {
      for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
        SCOPED_TRACE(testing::Message() << in << " × " << out << (transposed ? " transposed" : ""));
        const bool odd_address = dtype != DType::kF32;
        check_shards(test::random_dense({dtype, in, out, transposed, odd_address}, random), out);
      }
    }
  }
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool act_order : {false, true}) {
      SCOPED_TRACE(testing::Message() << bits << " bits");
      for (const auto& [in, out, size] :
           {std::array<std::int64_t, 3>{64, 1, 64}, {160, 33, 24}, {288, 40, 128}}) {
        const test::GptqShape shape{bits, in, out, size, act_order, test::GptqZeros::kWords};
        check_shards(test::random_gptq(shape, random), out);
      }
    }
  }
  check_shards(test::random_gptq_with_empty_groups(random), 32);
  for (const std::int64_t out : {32, 96, 224}) {
    check_shards(
        test::random_exl2({{8, 32}, {6, 64}, {5, 96}, {4, 32}, {3, 160}, {2, 32}}, out, random),
        out);
    check_shards(test::random_exl2({{4, 64}}, out, random), out - 5);
  }
}

// Shares of an EXL2 matrix have whole groups in turns, and no permutation.
TEST(Shard, Exl2InputsAreWholeGroupsInTurns) {
  test::Engine random(6);
  const WeightMatrix matrix = test::random_exl2({{5, 64}, {4, 64}, {4, 64}, {3, 32}}, 32, random);
  const auto part =
      std::get<Exl2Matrix>(cut_matrix(matrix, {ShardRule::kSplitIn, input_share(matrix, {1, 2})}));
  ASSERT_EQ(part.groups.size(), 2u);
  EXPECT_EQ(part.groups[0].bits, 4);
  EXPECT_EQ(part.groups[0].slots, 64);
  EXPECT_EQ(part.groups[1].bits, 3);
  EXPECT_EQ(part.groups[1].first_word, 8);
  EXPECT_EQ(part.groups[1].first_slot, 64);
  EXPECT_TRUE(std::is_sorted(part.perm.begin(), part.perm.end()));
}

Exl2Matrix in_file_order(Exl2Matrix matrix) {
  std::iota(matrix.perm.begin(), matrix.perm.end(), 0);
  return matrix;
}

// Channels that are no run of the file, in an order that is not the file's.
TEST(SelectInputs, Exl2MovesSingleCodes) {
  test::Engine random(7);
  const WeightMatrix matrix = in_file_order(test::random_exl2({{3, 64}, {5, 96}}, 64, random));
  const Halves whole = dequantize_to_half(matrix);
  Features channels;
  for (std::int32_t i = 1; i < 64; i += 2) channels.push_back(i);  // 32 of the first group
  for (std::int32_t i = 70; i < 134; ++i) channels.push_back(i);   // 64 of the second
  std::shuffle(channels.begin(), channels.end(), random);
  std::vector<int> seen(160, 0);
  compare_part(whole, matrix, {ShardRule::kSplitIn, channels}, seen);
  // None of a group leaves the group out.
  Features second(96);
  std::iota(second.begin(), second.end(), 64);
  compare_part(whole, matrix, {ShardRule::kSplitIn, second}, seen);
  EXPECT_EQ(std::get<Exl2Matrix>(select_inputs(matrix, second)).groups.size(), 1u);
}

TEST(SelectInputs, WhatAFormatCannotHoldIsRefusedByName) {
  test::Engine random(8);
  Exl2Matrix exl2 = in_file_order(test::random_exl2({{3, 64}, {5, 96}}, 64, random));
  exl2.name = "some.o_proj";
  Features channels(64);
  std::iota(channels.begin(), channels.end(), 33);  // 31 of group 0, 33 of group 1
  expect_error(ErrorCode::kUnsupported,
               {"'some.o_proj'", "31 of the 64", "group 0", "3 bits", "multiples of 32"},
               [&] { select_inputs(exl2, channels); });
  GptqMatrix gptq = test::random_gptq({4, 64, 32, 32, true, test::GptqZeros::kBytes}, random);
  gptq.name = "some.down_proj";
  for (const Features& wrong : {Features{4, 5, 6, 7, 8, 9, 10, 11}, Features{0, 1, 2, 3},
                                Features{0, 1, 2, 3, 4, 5, 7, 6}}) {
    expect_error(ErrorCode::kUnsupported, {"'some.down_proj'", "4-bit", "runs of 8"},
                 [&] { select_inputs(gptq, wrong); });
  }
}

TEST(SelectInputs, NeighboursOfAPlainMatrixStayWhereTheyAre) {
  test::Engine random(9);
  for (const bool transposed : {false, true}) {
    const DenseMatrix matrix = test::random_dense({DType::kF16, 40, 24, transposed}, random);
    const auto first = static_cast<const std::uint16_t*>(matrix.weight.view.data);
    for (const ShardRule rule : {ShardRule::kSplitIn, ShardRule::kSplitOut}) {
      const auto part = std::get<DenseMatrix>(cut_matrix(matrix, {rule, {8, 9, 10}}));
      const bool rows = transposed == (rule == ShardRule::kSplitIn);
      EXPECT_EQ(part.weight.view.data, first + 8 * (rows ? matrix.weight.view.row_stride : 1));
      EXPECT_EQ(part.weight.owner, matrix.weight.owner);
    }
  }
}

TEST(Shard, ABiasIsCutWithTheOutputsAndKeptWithTheInputs) {
  const SafetensorsFile file(test::data_dir() / "format" / "exl2.safetensors");
  const WeightMatrix matrix = load_weight_matrix(file, "all-widths", {});
  const auto* whole = bias_of(matrix).view.as<std::uint16_t>();
  const WeightMatrix columns =
      cut_matrix(matrix, {ShardRule::kSplitOut, output_share(matrix, 96, {2, 3})});
  ASSERT_EQ(bias_of(columns).view.shape, Shape{32});
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(bias_of(columns).view.as<std::uint16_t>()[i], whole[64 + i]);
  const WeightMatrix rows = cut_matrix(matrix, {ShardRule::kSplitIn, input_share(matrix, {0, 2})});
  EXPECT_EQ(bias_of(rows).view.as<std::uint16_t>(), whole);
}

}  // namespace
}  // namespace bl
