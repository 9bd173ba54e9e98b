// The test vectors of docs/formats/exl2.md §13, and every row of its table of checks (§12 there).

#include "format/exl2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "format/bit_codec.h"
#include "format/dequantize.h"
#include "format/exl2_scale.h"
#include "format/load_weight_matrix.h"
#include "tensor_set.h"

namespace bl {
namespace {

using test::expect_error;
using test::open_set;
using test::raw;
using test::TensorSet;

// Codes of the vectors: slot k, column c.
std::uint32_t vector_code(std::int64_t k, std::int64_t c, int bits) {
  return static_cast<std::uint32_t>((7 * k * k + 13 * k + 11 * c + 5) / 2) & code_mask(bits);
}

struct VectorGroup {
  int bits;
  int slots;
};

// The tensors "m.*" of those codes in 32 columns.
TensorSet make_set(const std::vector<VectorGroup>& groups, const std::vector<std::uint32_t>& scale,
                   const std::vector<std::uint16_t>& scale_max,
                   const std::vector<std::int32_t>& invperm) {
  constexpr std::int64_t kColumns = 32;
  std::vector<std::uint32_t> words;
  std::vector<std::uint16_t> pairs;
  std::int64_t slot = 0;
  for (const VectorGroup& group : groups) {
    const std::size_t start = words.size();
    pairs.push_back(static_cast<std::uint16_t>(group.bits));
    pairs.push_back(static_cast<std::uint16_t>(start / kColumns));
    words.resize(start + static_cast<std::size_t>(group.slots * group.bits));
    for (std::int64_t c = 0; c < kColumns; ++c) {
      for (std::int64_t r = 0; r < group.slots; ++r) {
        write_code(words.data() + start + c, kColumns, r, group.bits,
                   vector_code(slot + r, c, group.bits));
      }
    }
    slot += group.slots;
  }
  const auto rows = static_cast<std::int64_t>(words.size()) / kColumns;
  const auto count = static_cast<std::int64_t>(groups.size());
  return {{"m.q_weight", raw("I32", {rows, kColumns}, words)},
          {"m.q_groups", raw("I16", {2 * count}, pairs)},
          {"m.q_scale", raw("I32", {count, kColumns / 8}, scale)},
          {"m.q_scale_max", raw("F16", {count}, scale_max)},
          {"m.q_invperm", raw("I32", {slot}, invperm)}};
}

const std::vector<std::uint32_t> kRisingScale{0x76543210, 0xfedcba98, 0x76543210, 0xfedcba98};

TensorSet one_group(int bits) {
  std::vector<std::int32_t> invperm(32);
  for (int k = 0; k < 32; ++k) {
    invperm[static_cast<std::size_t>((5 * k + 3) % 32)] = k;
  }
  return make_set({{bits, 32}}, kRisingScale, {0x2267}, invperm);
}

TensorSet two_groups() {
  std::vector<std::int32_t> invperm(96);
  for (int i = 0; i < 96; ++i) invperm[static_cast<std::size_t>(i)] = 95 - i;
  std::vector<std::uint32_t> scale = kRisingScale;
  scale.insert(scale.end(), {0x89abcdef, 0x01234567, 0x89abcdef, 0x01234567});
  return make_set({{5, 32}, {3, 64}}, scale, {0x2a66, 0x3666}, invperm);
}

struct WidthVector {
  int bits;
  std::vector<std::uint32_t> column0, column1, column31;
  std::uint16_t elements[6];
};

const std::vector<WidthVector>& width_vectors() {
  static const std::vector<WidthVector> kVectors = {
      {2,
       {0xf852f852, 0xf852f852},
       {0x52f852f8, 0x52f852f8},
       {0xa70da70d, 0xa70da70d},
       {0x8668, 0x0000, 0xa268, 0x0000, 0x2268, 0x9e68}},
      {3,
       {0x467d4b62, 0x4b62ef02, 0xef02467d},
       {0xf43426d0, 0x26d0a66f, 0xa66ff434},
       {0x19caf03d, 0xf03d58b9, 0x58b919ca},
       {0x8a68, 0x8668, 0x2268, 0x8e68, 0xa268, 0x0000}},
      {4,
       {0xb7a45dc2, 0x7b681186, 0x3f2cd54a, 0xf3e0990e},
       {0x1d0ab328, 0xd1ce77ec, 0x95823ba0, 0x5946ff64},
       {0x625f087d, 0x2613cc31, 0xead780f5, 0xae9b44b9},
       {0x8e68, 0x8cce, 0xa8ce, 0x94ce, 0xac01, 0xa268}},
      {5,
       {0xf54af582, 0x888716d9, 0x948abacc, 0x1e9be5c6, 0x7cfd04a6},
       {0x41ad8e48, 0xeb9fdc0b, 0xad50ec58, 0xc4cd7029, 0xae4967be},
       {0x8bf022ed, 0x3e306134, 0x41f515a3, 0x69f6ba7c, 0xd793ba53},
       {0x0000, 0x919b, 0x2c01, 0x0e68, 0x28ce, 0xa8ce}},
      {6,
       {0x94d5d302, 0x16166e7e, 0xdcb988c6, 0xbcb6592a, 0x9c3e4ef4, 0xbd3fb0a6},
       {0x1aee3488, 0x779c86d0, 0xf51b0ede, 0x02cebab0, 0xfd846756, 0xd59136be},
       {0x7f808ded, 0xc0c11929, 0x8b647370, 0x676103d5, 0x46e9f9af, 0x6bea5b51},
       {0x1268, 0x9602, 0xb068, 0x999b, 0x339c, 0xad9b}},
      {8,
       {0x351d0c02, 0xdba77a54, 0xf1a15816, 0x770ba648, 0x6de564ea, 0xd32f92fc, 0xa9e9307e,
        0xef133e70},
       {0x3b231208, 0xe1ad805a, 0xf7a75e1c, 0x7d11ac4e, 0x73eb6af0, 0xd9359802, 0xafef3684,
        0xf5194476},
       {0xe0c8b7ad, 0x865225ff, 0x9c4c03c1, 0x22b651f3, 0x18900f95, 0x7eda3da7, 0x5494db29,
        0x9abee91b},
       {0x9c01, 0x9e4e, 0xb84e, 0xa581, 0x3dc1, 0xb202}},
  };
  return kVectors;
}

TEST(Exl2, OneGroupOfEveryWidth) {
  for (const WidthVector& vector : width_vectors()) {
    SCOPED_TRACE(vector.bits);
    const SafetensorsFile file = open_set(one_group(vector.bits));
    const Exl2Matrix matrix = load_exl2_matrix(file, "m");
    EXPECT_EQ(matrix.in, 32);
    EXPECT_EQ(matrix.out, 32);
    for (std::size_t w = 0; w < static_cast<std::size_t>(vector.bits); ++w) {
      EXPECT_EQ(matrix.q_weight[w * 32], vector.column0[w]);
      EXPECT_EQ(matrix.q_weight[w * 32 + 1], vector.column1[w]);
      EXPECT_EQ(matrix.q_weight[w * 32 + 31], vector.column31[w]);
    }
    const auto values = dequantize_to_half(matrix);
    const std::size_t places[6] = {0 * 32 + 0, 3 * 32 + 0,   3 * 32 + 15,
                                   8 * 32 + 1, 31 * 32 + 31, 13 * 32 + 7};
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(values[places[i]], vector.elements[i]) << "element " << i;
    }
  }
}

TEST(Exl2, GroupScalesAreSubnormal) {
  const float scale = exl2_group_scale(0x2267);
  EXPECT_EQ(float_to_half(scale), 0x0334);
  EXPECT_EQ(float_to_half(exl2_column_scale(scale, 0)), 0x0334);
  EXPECT_EQ(float_to_half(exl2_column_scale(scale, 1)), 0x0a68);
  EXPECT_EQ(float_to_half(exl2_column_scale(scale, 7)), 0x1a68);
  EXPECT_EQ(float_to_half(exl2_column_scale(scale, 15)), 0x2268);
  // The multiplier joins before the one rounding: 0x2267 · 2 / 256 = 1639 · 2^-24, exact.
  EXPECT_EQ(exl2_group_scale(0x0080), 0.0f);  // 2^-17 / 256 = 2^-25, a tie that goes to zero
}

TEST(Exl2, TwoGroupsOfDifferentWidth) {
  const SafetensorsFile file = open_set(two_groups());
  const Exl2Matrix matrix = load_exl2_matrix(file, "m");
  ASSERT_EQ(matrix.groups.size(), 2u);
  EXPECT_EQ(matrix.groups[1].bits, 3);
  EXPECT_EQ(matrix.groups[1].first_word, 5);
  EXPECT_EQ(matrix.groups[1].first_slot, 32);
  EXPECT_EQ(matrix.groups[1].slots, 64);
  const auto values = dequantize_to_half(matrix);
  EXPECT_EQ(values[95 * 32 + 0], 0x9999);
  EXPECT_EQ(values[64 * 32 + 3], 0xaa66);
  EXPECT_EQ(values[63 * 32 + 0], 0xba66);
  EXPECT_EQ(values[0 * 32 + 0], 0x3ccc);
  EXPECT_EQ(values[31 * 32 + 5], 0x360c);
  EXPECT_EQ(values[40 * 32 + 31], 0x1a66);
  const auto stored = dequantize_to_half(matrix, RowOrder::kStored);
  for (std::size_t k = 0; k < 96; ++k) {
    for (std::size_t c = 0; c < 32; ++c) ASSERT_EQ(stored[k * 32 + c], values[(95 - k) * 32 + c]);
  }
}

// Loads the two-group set after `spoil` changed it, and expects the error.
void expect_rejected(const std::vector<std::string>& parts, void (*spoil)(TensorSet&),
                     ErrorCode code = ErrorCode::kInvalidFile) {
  TensorSet set = two_groups();
  spoil(set);
  expect_error(code, parts, [&] { load_weight_matrix(open_set(set), "m", {}); });
}

TEST(Exl2, RejectsWrongTypesAndShapes) {
  expect_rejected({"'m.q_weight'", "F32", "I32"},
                  [](TensorSet& s) { s["m.q_weight"].dtype = "F32"; });
  expect_rejected({"'m.q_weight'", "dimensions", "2"},
                  [](TensorSet& s) { s["m.q_weight"].shape = {11 * 32}; });
  expect_rejected({"'m.q_groups'", "I16"}, [](TensorSet& s) {
    s["m.q_groups"] = raw("I32", {2}, std::vector<std::int32_t>{5, 0});
  });
  expect_rejected({"'m.q_scale_max'", "BF16"},
                  [](TensorSet& s) { s["m.q_scale_max"].dtype = "BF16"; });
  expect_rejected({"'m.q_weight'", "multiple of 32"}, [](TensorSet& s) {
    s["m.q_weight"].shape = {22, 16};
  });
  expect_rejected({"'m.q_weight'", "[0, 32]"}, [](TensorSet& s) {
    s["m.q_weight"] = raw("I32", {0, 32}, std::vector<std::int32_t>{});
  });
  expect_rejected({"'m.q_scale'", "[4, 2]", "[2, 4]"}, [](TensorSet& s) {
    s["m.q_scale"].shape = {4, 2};
  });
  expect_rejected({"'m.q_scale_max'", "must be 2"}, [](TensorSet& s) {
    s["m.q_scale_max"] = raw("F16", {3}, std::vector<std::uint16_t>{1, 2, 3});
  });
  expect_rejected({"'m.q_groups'", "pairs"}, [](TensorSet& s) {
    s["m.q_groups"] = raw("I16", {3}, std::vector<std::uint16_t>{5, 0, 3});
  });
  expect_rejected({"'m.q_groups'", "pairs"}, [](TensorSet& s) {
    s["m.q_groups"] = raw("I16", {0}, std::vector<std::uint16_t>{});
  });
}

TEST(Exl2, RejectsWrongGroups) {
  const auto groups = [](TensorSet& s, std::vector<std::uint16_t> pairs) {
    s["m.q_groups"] = raw("I16", {4}, pairs);
  };
  static const auto set_groups = groups;
  expect_rejected({"'m.q_groups'", "7 bits"}, [](TensorSet& s) { set_groups(s, {7, 0, 3, 5}); });
  expect_rejected({"'m.q_groups'", "0 bits"}, [](TensorSet& s) { set_groups(s, {0, 0, 3, 5}); });
  expect_rejected({"'m.q_groups'", "65535 bits"}, [](TensorSet& s) {
    set_groups(s, {65535, 0, 3, 5});
  });
  expect_rejected({"'m.q_groups'", "must be 0"}, [](TensorSet& s) { set_groups(s, {5, 1, 3, 5}); });
  expect_rejected({"'m.q_groups'", "group 1", "after 0"}, [](TensorSet& s) {
    set_groups(s, {5, 0, 3, 0});
  });
  expect_rejected({"'m.q_groups'", "word row 11", "below 11"}, [](TensorSet& s) {
    set_groups(s, {5, 0, 3, 11});
  });
  expect_rejected({"'m.q_groups'", "word row 60000", "below 11"}, [](TensorSet& s) {
    set_groups(s, {5, 0, 3, 60000});
  });
  expect_rejected({"'m.q_groups'", "not a multiple of 32"}, [](TensorSet& s) {
    set_groups(s, {5, 0, 3, 4});
  });
}

TEST(Exl2, RejectsWhatIsNoPermutation) {
  expect_rejected({"'m.q_invperm'", "64 entries", "96"}, [](TensorSet& s) {
    s["m.q_invperm"] = raw("I32", {64}, std::vector<std::int32_t>(64));
  });
  expect_rejected({"'m.q_invperm'", "slot 95 occurs twice"},
                  [](TensorSet& s) { s["m.q_invperm"].bytes[4] = std::byte{95}; });
  expect_rejected({"'m.q_invperm'", "entry 0 is 96"},
                  [](TensorSet& s) { s["m.q_invperm"].bytes[0] = std::byte{96}; });
  expect_rejected({"'m.q_invperm'", "entry 0 is -1"}, [](TensorSet& s) {
    for (int i = 0; i < 4; ++i)
      s["m.q_invperm"].bytes[static_cast<std::size_t>(i)] = std::byte{255};
  });
}

TEST(Exl2, ScaleMaximaMustBeFinite) {
  expect_rejected({"'m.q_scale_max'", "group 1", "not finite"}, [](TensorSet& s) {
    s["m.q_scale_max"] = raw("F16", {2}, std::vector<std::uint16_t>{0x3666, 0x7c00});
  });
  expect_rejected({"'m.q_scale_max'", "group 0", "not finite"}, [](TensorSet& s) {
    s["m.q_scale_max"] = raw("F16", {2}, std::vector<std::uint16_t>{0xfe01, 0});
  });
  TensorSet set = two_groups();
  set["m.q_scale_max"] = raw("F16", {2}, std::vector<std::uint16_t>{0, 0});
  for (const std::uint16_t value : dequantize_to_half(load_exl2_matrix(open_set(set), "m"))) {
    ASSERT_EQ(value & 0x7fff, 0);
  }
}

TEST(Exl2, NamesTheMissingTensor) {
  expect_rejected(
      {"no tensor 'm.q_scale'"}, [](TensorSet& s) { s.erase("m.q_scale"); }, ErrorCode::kNotFound);
  expect_rejected(
      {"no tensor 'm.q_invperm'"}, [](TensorSet& s) { s.erase("m.q_invperm"); },
      ErrorCode::kNotFound);
}

TEST(Exl2, FitsTheArchitectureOrSaysWhyNot) {
  const SafetensorsFile file = open_set(two_groups());
  EXPECT_EQ(out_features(load_weight_matrix(file, "m", {.in = 96, .out = 32})), 32);
  EXPECT_EQ(out_features(load_weight_matrix(file, "m", {.in = 96, .out = 1})), 32);  // padded
  expect_error(ErrorCode::kInvalidFile, {"'m'", "96 input", "64"},
               [&] { load_weight_matrix(file, "m", {.in = 64, .out = 32}); });
  expect_error(ErrorCode::kInvalidFile, {"'m'", "32 output", "33"},
               [&] { load_weight_matrix(file, "m", {.in = 96, .out = 33}); });
  TensorSet wide = two_groups();
  wide["m.bias"] = raw("F16", {31}, std::vector<std::uint16_t>(31));
  expect_error(ErrorCode::kInvalidFile, {"'m.bias'", "31", "32"},
               [&] { load_weight_matrix(open_set(wide), "m", {}); });
  expect_error(ErrorCode::kNotFound, {"'m.bias'"},
               [&] { load_weight_matrix(file, "m", {.bias = BiasRule::kRequired}); });
  wide["m.bias"] = raw("F16", {32}, std::vector<std::uint16_t>(32));
  expect_error(ErrorCode::kInvalidFile, {"'m.bias'", "no bias"},
               [&] { load_weight_matrix(open_set(wide), "m", {.bias = BiasRule::kNone}); });
  EXPECT_EQ(bias_of(load_weight_matrix(open_set(wide), "m", {})).view.shape[0], 32);
}

TEST(Exl2, IgnoresTensorsThatOnlyOldReadersUsed) {
  TensorSet set = two_groups();
  set["m.q_perm"] = raw("I32", {1}, std::vector<std::int32_t>{77});
  set["m.q_group_map"] = raw("I16", {1}, std::vector<std::int16_t>{77});
  EXPECT_EQ(dequantize_to_half(load_exl2_matrix(open_set(set), "m")),
            dequantize_to_half(load_exl2_matrix(open_set(two_groups()), "m")));
}

TEST(Exl2, ViewsOutliveTheFile) {
  Exl2Matrix matrix;
  {
    const SafetensorsFile file = open_set(two_groups());
    matrix = load_exl2_matrix(file, "m");
  }
  EXPECT_EQ(dequantize_to_half(matrix)[0], 0x3ccc);
}

}  // namespace
}  // namespace bl
