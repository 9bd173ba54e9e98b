// Rows of the cache on every instruction set: the bytes of the scalar definition, and the same
// numbers back from both placements.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/kv_rows.h"
#include "backend/device.h"
#include "ops/kv_codec.h"

namespace bl::test {
namespace {

constexpr int kSimdDims[] = {2, 8, 12, 17, 31, 32, 64, 72, 80, 96, 112, 128, 192, 256, 576};

class CpuKvCodec : public testing::TestWithParam<cpu::Isa> {
 protected:
  const cpu::AttentionKernels& kernels() const { return cpu::kernels_for(GetParam()).attention; }
};

INSTANTIATE_TEST_SUITE_P(Isas, CpuKvCodec, testing::ValuesIn(cpu::available_isas()),
                         [](const auto& info) {
                           return test_name(std::string(cpu::name_of(info.param)));
                         });

// Ordinary rows, and rows at the borders of the formats.
std::vector<std::vector<float>> inputs(int dim) {
  Random random(static_cast<std::uint64_t>(dim));
  std::vector<std::vector<float>> rows;
  for (const float deviation : {1.0f, 30.0f, 0.01f, 1e-6f, 1e-9f, 2000.0f, 1e6f}) {
    rows.push_back(random.normal(dim, deviation));
  }
  rows.emplace_back(static_cast<std::size_t>(dim), 0.0f);
  rows.emplace_back(static_cast<std::size_t>(dim), -3.0f);
  rows.push_back(random.normal(dim));
  rows.back()[0] = 448.0f;
  rows.back()[static_cast<std::size_t>(dim) - 1] = -70000.0f;
  // Values that lie between two codes.
  rows.emplace_back();
  for (int i = 0; i < dim; ++i) rows.back().push_back(static_cast<float>(2 * i + 1) * 0x1p-10f);
  return rows;
}

TEST_P(CpuKvCodec, WritesTheBytesOfTheDefinition) {
  for (const NamedCacheType& named : kCacheTypes) {
    const CacheType type = named.type;
    for (const int dim : kSimdDims) {
      const KvLayout layout{type, 1, dim, dim};
      for (const KvRow& row : {layout.k_row(), layout.v_row()}) {
        const cpu::RowFormat format = cpu::row_format(row);
        for (const std::vector<float>& x : inputs(dim)) {
          std::vector<std::byte> expected(row.bytes());
          encode_kv_row(row, x.data(), expected.data());
          std::vector<std::byte> bytes(row.bytes() + 1, std::byte{0x77});
          std::vector<float> room(x.size());
          kernels().encode_row(format, x.data(), room.data(), bytes.data());
          EXPECT_EQ(bytes.back(), std::byte{0x77});
          EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), expected.size()), 0)
              << name_of(type) << " dim " << dim << " first " << x[0];
        }
      }
    }
  }
}

TEST_P(CpuKvCodec, ReadsValuesAndKeys) {
  for (const NamedCacheType& named : kCacheTypes) {
    const CacheType type = named.type;
    for (const int dim : kSimdDims) {
      const KvLayout layout{type, 1, dim, dim};
      const auto width = static_cast<std::size_t>(dim);
      for (const bool key : {false, true}) {
        const KvRow row = key ? layout.k_row() : layout.v_row();
        const cpu::RowFormat format = cpu::row_format(row);
        std::vector<std::byte> bytes(row.bytes());
        std::vector<float> expected(width);
        std::vector<float> got(width + 16);
        std::vector<std::byte> run(16 * row.bytes());
        std::vector<float> keys(16 * width);
        std::size_t lane = 3;
        for (const std::vector<float>& x : inputs(dim)) {
          encode_kv_row(row, x.data(), bytes.data());
          decode_kv_row(row, bytes.data(), expected.data());
          if (!key) {
            kernels().decode_value(format, bytes.data(), got.data());
            EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin()))
                << name_of(type) << " dim " << dim;
            continue;
          }
          // The placement of keys, written out: atoms, then scales, sixteen slots abreast.
          for (std::size_t b = 0; b < row.bytes(); ++b) {
            const bool code = b < format.code_bytes;
            const std::size_t atom = code ? format.atom : 2;
            const std::size_t at = code ? b : b - format.code_bytes;
            run[(code ? 0 : 16 * format.code_bytes) + at / atom * 16 * atom + lane * atom +
                at % atom] = bytes[b];
          }
          kernels().decode_keys(format, run.data(), keys.data());
          for (std::size_t d = 0; d < width; ++d) {
            ASSERT_EQ(keys[d * 16 + lane], expected[d]) << name_of(type) << " dim " << dim;
          }
          lane = (lane + 5) % 16;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bl::test
