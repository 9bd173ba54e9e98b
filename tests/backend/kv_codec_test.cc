// The row formats of the cache: exact facts, and errors against the reference's modes at equal
// bytes.

#include "ops/kv_codec.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/device.h"
#include "backend/reference_cache.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

constexpr int kDims[] = {1, 7, 8, 12, 32, 64, 72, 80, 96, 112, 128, 192, 256, 576};

TEST(KvCodec, RotationIsOrthonormalAndItsOwnInverse) {
  Random random(1);
  for (const int dim : kDims) {
    const std::vector<float> x = random.normal(dim);
    std::vector<float> y = x;
    rotate_kv_head(y.data(), dim);
    double before = 0;
    double after = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      before += std::pow(static_cast<double>(x[i]), 2);
      after += std::pow(static_cast<double>(y[i]), 2);
    }
    EXPECT_NEAR(after / before, 1.0, 1e-5) << dim;
    rotate_kv_head(y.data(), dim);
    EXPECT_LE(worst_difference(y, x), 2e-6) << dim;
  }
}

TEST(KvCodec, RotationSpreadsAnOutlier) {
  for (const int dim : {64, 80, 96, 112, 128, 192, 256}) {
    std::vector<float> x(static_cast<std::size_t>(dim), 0.0f);
    x[5] = 1.0f;
    rotate_kv_head(x.data(), dim);
    // Evenly over its scale group, and nowhere else.
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(std::fabs(x[i]), i < 32 ? 1.0 / std::sqrt(32.0) : 0.0, 1e-6) << dim;
    }
  }
}

TEST(KvCodec, E4m3RoundsToTheNearest) {
  std::vector<float> values;
  for (int code = 0; code < 0x7f; ++code) {
    values.push_back(e4m3_to_float(static_cast<std::uint8_t>(code)));
    EXPECT_EQ(float_to_e4m3(values.back()), code);
    EXPECT_EQ(float_to_e4m3(-values.back()), code | 0x80);
  }
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
  EXPECT_EQ(values.back(), 448.0f);
  EXPECT_EQ(values[1], 0x1p-9f);
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const float middle = (values[i] + values[i + 1]) / 2;
    const int even = static_cast<int>(i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(float_to_e4m3(middle), even);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 1e9f)), i + 1);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, -1.0f)), i);
  }
  for (const float huge : {449.0f, 1e9f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(float_to_e4m3(huge), 0x7e);
    EXPECT_EQ(float_to_e4m3(-huge), 0xfe);
  }
}

std::vector<KvRow> rows_of(int dim) {
  std::vector<KvRow> rows;
  for (const CacheTypes type : kAllCacheTypes) {
    if (!type.are_one()) continue;  // the same rows
    const KvLayout layout{type, 1, dim, dim};
    rows.push_back(layout.k_row());
    rows.push_back(layout.v_row());
  }
  return rows;
}

std::vector<float> through(const KvRow& row, const std::vector<float>& x) {
  std::vector<std::byte> bytes(row.bytes() + 1, std::byte{0x5a});
  std::vector<float> y(x.size());
  encode_kv_row(row, x.data(), bytes.data());
  EXPECT_EQ(bytes.back(), std::byte{0x5a});  // nothing behind the row
  decode_kv_row(row, bytes.data(), y.data());
  if (row.rotated()) rotate_kv_head(y.data(), row.dim);
  return y;
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0;
  double total = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    total += std::pow(static_cast<double>(x[i]), 2);
  }
  return std::sqrt(error / total);
}

TEST(KvCodec, ErrorsStayInTheirBounds) {
  Random random(2);
  for (const int dim : kDims) {
    if (dim < 32) continue;
    for (const KvRow& row : rows_of(dim)) {
      const std::vector<float> x = random.normal(dim, 3.0f);
      const double bound = row.code == KvRow::Code::kF32    ? 0.0
                           : row.code == KvRow::Code::kF16  ? 5e-4
                           : row.code == KvRow::Code::kE4M3 ? 0.05
                           : row.bits == 8                  ? 0.009
                                                            : 0.96 / (1 << (row.bits - 1));
      EXPECT_LE(relative_error(x, through(row, x)), bound) << dim << " " << row.bits;
    }
  }
}

// Bytes that tools/make_kv_codec_goldens.py made from the words of ops/kv_codec.h.
TEST(KvCodec, WritesWhatTheHeaderSays) {
  struct Vector {
    int dim, bits;
    const char* row;
  };
  constexpr Vector kVectors[] = {
      {64, 8,
       "90a46a7c8253adad8e847c7c53535aad9884297c0053adadd7847c7c53535aad788e839a6d9a66667366339a9a9"
       "a6666b39a66660066339a9a9a6666cd66339a97258824"},
      {64, 7,
       "c82255ee01997777b722eeee9999dd778001dfff88aa9955575522aa9cd7323d063da3d3d9d33a3d6d3da3d31f0"
       "cf4f083f05f0fd85b01a597298828"},
      {64, 6,
       "6419abff0055bbbb6311ffff555577bbeaaa4555465566aade64a1a60ba6da6a6d6aada636a6da6aa5a6525ac95"
       "a05a5972d882c"},
      {64, 5,
       "32055d0000aa6666b2000000aaaabb66575566ff6f32d0d31ed37d3d3e3dd7d393d37d3dd85b01a56c31d530"},
      {64, 4, "a98a27880855bbbbe9888888555555bbb7a9686a076a36a6a7a6636ada6a36a643354334"},
      {64, 3, "d501130088aaeeaa575566ff605df4f5c7f55f5fdd5b01a5b538a137"},
      {64, 2, "eaab8aaa465577fffaf6525fce5f05f5793c4d3a"},
      {45, 8,
       "90a46a7c8253adad8e847c7c53535aad9884297c0053adadd7847c7c53535aadd6ef062039526b849eb7d0e9009"
       "72514a1"},
      {45, 7,
       "c82255ee01997777b722eeee9999dd778001dfff88aa9955575522aa2bf8b3805c0906061b2c31b1f9972914a"
       "5"},
      {45, 6, "6419abff0055bbbb6311ffff555577bbeaaa4555465566aa167ce248ae040b23a7b4b8972d14a9"},
      {45, 5, "32055d0000aa6666b2000000aaaabb66575566ff1b4e71a4d70a0db1f96c3114ad"},
      {45, 4, "a98a27880855bbbbe9888888555555bb8eafc0d2f305874335c7b0"},
      {45, 3, "d501130088aaeeaa575566ff1b2f2c31b1f9b53814b5"},
      {45, 2, "eaab8aaa465577ff27b7b8b8793c14b9"},
      {24, 8, "2b918983d1a4c05ca499807a643764c9b0991c7a0037c9c9a0a4"},
      {24, 7, "25c8244189d2e0de02cd404d39d83460928d2eaba7a0a8"},
      {24, 6, "9be49221c46970f709e6202f1c461a3aebe6a0ac"},
      {24, 5, "d672d1906a3448fc0473909f2eaba7b3b0"},
      {24, 4, "623969d8bdaa1c860a3ad8d85bb4"},
      {24, 3, "391d3474e3d12eebafcab7"},
      {24, 2, "2d962e7afbeb1dbc"},
  };
  for (const Vector& vector : kVectors) {
    std::vector<float> x;
    for (int i = 0; i < vector.dim; ++i) {
      x.push_back(static_cast<float>((37 * i + 11) % 41 - 20) / 16.0f);
    }
    x[6] += 3.0f;
    const KvRow row{KvRow::Code::kInt, vector.bits, vector.dim};
    std::vector<std::byte> bytes(row.bytes());
    encode_kv_row(row, x.data(), bytes.data());
    std::vector<std::uint8_t> written;
    for (const std::byte b : bytes) written.push_back(static_cast<std::uint8_t>(b));
    EXPECT_EQ(hex(written, written.size()), vector.row) << vector.dim << " " << vector.bits;
  }
}

std::uint32_t word_at(const std::byte* bytes, int index) {
  std::uint32_t word = 0;
  for (int i = 3; i >= 0; --i) word = word << 8 | static_cast<std::uint32_t>(bytes[4 * index + i]);
  return word;
}

// Four elements at a time, as the header says it for kernels.
TEST(KvCodec, WholeGroupsUnpackByWords) {
  Random random(6);
  for (int bits = 2; bits <= 8; ++bits) {
    const KvRow row{KvRow::Code::kInt, bits, 32};
    const std::vector<float> x = random.normal(32);
    std::vector<std::byte> bytes(row.bytes());
    encode_kv_row(row, x.data(), bytes.data());
    std::vector<float> expected(32);
    decode_kv_row(row, bytes.data(), expected.data());
    const float scale =
        half_to_float(static_cast<std::uint16_t>(word_at(bytes.data() + row.bytes() - 4, 0) >> 16));
    for (int u = 0; u < 8; ++u) {
      std::uint32_t codes = 0;
      int lowest = 0;
      const std::byte* plane = bytes.data();
      for (const int width : {8, 4, 2, 1}) {
        if ((bits & width) == 0) continue;
        const std::uint32_t mask = 0x01010101u * ((1u << width) - 1u);
        codes |= (word_at(plane, u % width) >> (width * (u / width)) & mask) << lowest;
        lowest += width;
        plane += 4 * width;
      }
      for (int i = 0; i < 4; ++i) {
        const auto n = static_cast<int>(codes >> (8 * i) & 255u);
        const auto e = static_cast<std::size_t>(4 * u + i);
        EXPECT_EQ(static_cast<float>(n - (1 << (bits - 1))) * scale, expected[e])
            << bits << " bits, element " << e;
      }
    }
  }
}

// What a group may err: half a step of A / h each, a whole one where the grid's shorter side ends
// before the element, and what rounding the scale to binary16 adds. Scales that are searched err no
// more than this one, which is among them.
double worst_group_error(const float* y, int count, int bits) {
  const double h = 1 << (bits - 1);
  double largest = 0;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(static_cast<double>(y[i])));
  const double step = largest / h;
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const bool inside = std::fabs(static_cast<double>(y[i])) <= (h - 0.5) * step;
    sum += std::pow((inside ? 0.5 : 1.0) * step + largest * 0x1p-11, 2);
  }
  return std::sqrt(sum);
}

TEST(KvCodec, EachGroupErrsLessThanItsSteps) {
  Random random(7);
  for (const int dim : {7, 32, 64, 80, 112, 128}) {
    for (int round = 0; round < 60; ++round) {
      std::vector<float> x = random.normal(dim, 2.0f);
      if (round % 3 == 1) x[static_cast<std::size_t>(round % dim)] += 25.0f;
      rotate_kv_head(x.data(), dim);
      std::vector<float> given = x;
      rotate_kv_head(given.data(), dim);  // what the codec rotates to x, but for rounding
      for (int bits = 2; bits <= 8; ++bits) {
        const KvRow row{KvRow::Code::kInt, bits, dim};
        std::vector<std::byte> bytes(row.bytes());
        std::vector<float> y(x.size());
        encode_kv_row(row, given.data(), bytes.data());
        decode_kv_row(row, bytes.data(), y.data());
        for (int first = 0; first < dim; first += kKvScaleGroup) {
          const int count = std::min(kKvScaleGroup, dim - first);
          double error = 0;
          for (int i = first; i < first + count; ++i) {
            const auto e = static_cast<std::size_t>(i);
            error += std::pow(static_cast<double>(x[e]) - static_cast<double>(y[e]), 2);
          }
          EXPECT_LE(std::sqrt(error), worst_group_error(x.data() + first, count, bits) + 1e-4)
              << bits << " bits, dim " << dim << " group at " << first;
        }
      }
    }
  }
}

TEST(KvCodec, ZerosStayZeros) {
  for (const int dim : kDims) {
    for (const KvRow& row : rows_of(dim)) {
      const std::vector<float> zeros(static_cast<std::size_t>(dim), 0.0f);
      EXPECT_EQ(through(row, zeros), zeros);
    }
  }
}

TEST(KvCodec, InputsThatAreNotFiniteGiveFiniteRows) {
  for (const int dim : {64, 80}) {
    for (const KvRow& row : rows_of(dim)) {
      if (row.code == KvRow::Code::kF32) continue;
      for (const float bad :
           {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
            std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
        std::vector<float> x(static_cast<std::size_t>(dim), 1.0f);
        x[17] = bad;
        for (const float value : through(row, x)) EXPECT_TRUE(std::isfinite(value)) << row.bits;
      }
    }
  }
}

// The reference's own arithmetic, as its specification gives it.
TEST(ReferenceCache, GivesThePublishedVectors) {
  std::vector<float> x(512, 0.0f);
  for (int i = 0; i < 64; ++i) {
    x[static_cast<std::size_t>(i)] = static_cast<float>((37 * i + 11) % 41 - 20) / 16.0f;
  }
  const ReferenceBlock q4 = reference_quantize(x, 4);
  EXPECT_EQ(q4.scales[0], 0x3FB0);
  EXPECT_EQ(q4.scales[1], 0x3920);
  EXPECT_EQ(hex(q4.codes, 32), "787a88889658885599553058bb88b8358888f88f88ff8008800888fff88f0088");
  const std::vector<float> d4 = reference_dequantize(q4, 4);
  const std::vector<float> expected4{-0.70068359f, -0.88085938f, -0.98095703f,
                                     1.36132813f,  1.06054688f,  0.76074219f};
  const ReferenceBlock q8 = reference_quantize(x, 8);
  EXPECT_EQ(q8.scales[0], 0x2FB0);
  EXPECT_EQ(q8.scales[1], 0x2920);
  EXPECT_EQ(hex(q8.codes, 64),
            "846c986d85858080608a80558080555595955555002b8055abab808080ab552b"
            "7d7d808080ffff808080ffff00808000008080008080ffff80ffff8000008080");
  const std::vector<float> d8 = reference_dequantize(q8, 8);
  const std::vector<float> expected8{-0.56933594f, -0.82080078f, -1.05273438f,
                                     1.25585938f,  1.00488281f,  0.74511719f};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_FLOAT_EQ(d4[i], expected4[i]);
    EXPECT_FLOAT_EQ(d8[i], expected8[i]);
  }
}

// Rows as attention sees them: Gaussian, with channels that are always large (keys), or with rare
// spikes (values).
std::vector<float> typical_rows(Random& random, int kind, int dim) {
  std::vector<float> x = random.normal(512 / 64 * dim);
  const int first = random.below(dim);
  const int second = random.below(dim);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto channel = static_cast<int>(i % static_cast<std::size_t>(dim));
    if (kind == 1 && (channel == first || channel == second)) x[i] += 15.0f;
    if (kind == 2 && random.below(100) == 0) x[i] *= 12.0f;
  }
  return x;
}

// A bit more halves the step, and so what is lost; a tenth is for grids so coarse that errors are
// not spread evenly over a step.
TEST(KvCodec, EveryBitHalvesTheError) {
  for (int kind = 0; kind < 3; ++kind) {
    double before = std::numeric_limits<double>::infinity();
    for (int bits = 2; bits <= 8; ++bits) {
      Random random(8);
      double error = 0;
      for (int round = 0; round < 100; ++round) {
        const std::vector<float> x = typical_rows(random, kind, 64);
        for (std::size_t i = 0; i < x.size(); i += 64) {
          const std::vector<float> part(x.begin() + static_cast<long>(i),
                                        x.begin() + static_cast<long>(i) + 64);
          error += relative_error(part, through({KvRow::Code::kInt, bits, 64}, part));
        }
      }
      EXPECT_LT(error, 0.55 * before) << bits << " bits, kind " << kind;
      before = error;
    }
  }
}

TEST(ReferenceCache, OursErrsLessAtEqualBytes) {
  Random random(3);
  for (const int dim : {64, 128, 256}) {
    for (int kind = 0; kind < 3; ++kind) {
      for (const int bits : {4, 8}) {
        const KvRow row{KvRow::Code::kInt, bits, dim};
        double ours = 0;
        double theirs = 0;
        for (int round = 0; round < 60; ++round) {
          const std::vector<float> x = typical_rows(random, kind, dim);
          std::vector<float> mine;
          for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(dim)) {
            const std::vector<float> y = through(
                row, {x.begin() + static_cast<long>(i), x.begin() + static_cast<long>(i) + dim});
            mine.insert(mine.end(), y.begin(), y.end());
          }
          ours += relative_error(x, mine);
          theirs += relative_error(x, reference_round_trip(x, bits));
        }
        // Two channels that are always large, one even, one odd: the reference transforms even and
        // odd elements apart, so that they do not add up. There ours may lose a little.
        const double bound = kind == 1 ? 1.10 : 0.95;
        EXPECT_LT(ours, bound * theirs) << dim << " kind " << kind << " bits " << bits;
        RecordProperty(fmt::format("ratio_{}_{}_{}", dim, kind, bits),
                       std::to_string(ours / theirs));
      }
    }
  }
}

// At 6.5 bits the reference keeps keys in 8 and values in 4 bits, ours both in 6: what the two err
// together is less.
TEST(ReferenceCache, SixBitsErrLessThanEightAndFour) {
  Random random(5);
  const KvRow row = KvLayout{CacheType::kQ6, 1, 64, 64}.k_row();
  EXPECT_EQ(row, (KvLayout{CacheType::kQ6, 1, 64, 64}.v_row()));
  double ours = 0;
  double theirs = 0;
  for (int round = 0; round < 60; ++round) {
    for (int kind = 0; kind < 2; ++kind) {
      const std::vector<float> x = typical_rows(random, kind, 64);
      std::vector<float> mine;
      for (std::size_t i = 0; i < x.size(); i += 64) {
        const std::vector<float> y =
            through(row, {x.begin() + static_cast<long>(i), x.begin() + static_cast<long>(i) + 64});
        mine.insert(mine.end(), y.begin(), y.end());
      }
      ours += std::pow(relative_error(x, mine), 2);
      theirs += std::pow(relative_error(x, reference_round_trip(x, kind == 0 ? 4 : 8)), 2);
    }
  }
  EXPECT_LT(ours, 0.5 * theirs);
}

TEST(ReferenceCache, OurFp8ErrsLessThanTruncation) {
  Random random(4);
  const KvRow row{KvRow::Code::kE4M3, 8, 64};
  for (int kind = 0; kind < 3; ++kind) {
    double ours = 0;
    double theirs = 0;
    for (int round = 0; round < 60; ++round) {
      std::vector<float> x = typical_rows(random, kind, 64);
      // All places between two powers of two: a large value just above one is cut by little.
      for (float& value : x) value *= std::exp2(static_cast<float>(round) / 60.0f);
      std::vector<float> mine;
      for (std::size_t i = 0; i < x.size(); i += 64) {
        const std::vector<float> y =
            through(row, {x.begin() + static_cast<long>(i), x.begin() + static_cast<long>(i) + 64});
        mine.insert(mine.end(), y.begin(), y.end());
      }
      ours += relative_error(x, mine);
      theirs += relative_error(x, reference_fp8(x));
    }
    EXPECT_LT(ours, 0.3 * theirs) << "kind " << kind;
  }
}

}  // namespace
}  // namespace bl::test
