// Packing for CUDA, on the host: the functions that the kernels call, word by word.

#include <gtest/gtest.h>

#include "backend/cuda/code_pack.h"
#include "backend/cuda/code_pack_plan.h"
#include "backend/cuda/unpack.h"
#include "format/dequantize.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using namespace cuda;

struct Packed {
  std::vector<std::uint32_t> codes;
  std::vector<std::uint32_t> scales;
};

Packed pack(const CodePackPlan& plan, const CodeSource& source, const ScaleSource& scales) {
  Packed packed;
  for (std::int64_t strip = 0; strip < plan.strips(); ++strip) {
    for (std::int64_t u = 0; u < plan.units(); ++u) {
      const int bits = plan.bits_of_unit[static_cast<std::size_t>(u)];
      for (int word = 0; word < unit_bytes(bits) / 4; ++word) {
        packed.codes.push_back(packed_word(source, u, bits, strip * kStripColumns, word));
      }
    }
    for (std::int64_t g = 0; g < plan.groups; ++g) {
      for (int word = 0; word < scale_bytes(plan.kind) / 4; ++word) {
        packed.scales.push_back(
            packed_scale_word(scales, plan.kind, g, strip * kStripColumns, word));
      }
    }
  }
  return packed;
}

// The first plan.out columns of a dequantized matrix against what the packed one gives back.
void expect_lossless(const WeightMatrix& matrix, const CodePackPlan& plan, const Packed& packed) {
  const std::vector<float> back =
      unpack_codes(plan, {packed.codes, packed.scales, plan.channel_of_slot});
  const std::vector<std::uint16_t> expected = dequantize_to_half(matrix);
  ASSERT_EQ(back.size(), static_cast<std::size_t>(plan.in * plan.out));
  for (std::int64_t i = 0; i < plan.in; ++i) {
    for (std::int64_t c = 0; c < plan.out; ++c) {
      ASSERT_EQ(back[static_cast<std::size_t>(i * plan.out + c)],
                half_to_float(expected[static_cast<std::size_t>(i * plan.stored_out + c)]))
          << "channel " << i << ", column " << c;
    }
  }
}

TEST(CudaPack, PlacesAreABijection) {
  for (const int bits : {1, 2, 4}) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int code = 0; code < 64; ++code) {
        const CodeName name{code / 16, code / 8 % 2, code / 4 % 2, code / 2 % 2, code % 2};
        const CodePlace place = place_in_plane(bits, lane, name);
        const PlacedCode back = code_at(bits, place.word, place.bit);
        EXPECT_EQ(back.lane, lane);
        EXPECT_EQ(column_in_unit(back.lane, back.name), column_in_unit(lane, name));
        EXPECT_EQ(slot_in_unit(back.lane, back.name), slot_in_unit(lane, name));
      }
    }
  }
}

TEST(CudaPack, Exl2LosesNothing) {
  Engine random(5);
  const std::vector<std::vector<GroupShape>> shapes{
      {{4, 128}, {4, 128}},
      {{8, 32}, {6, 64}, {5, 96}, {4, 128}, {3, 32}, {2, 160}},
      {{2, 32}},
      {{5, 32}, {5, 32}, {3, 64}}};
  for (const auto& groups : shapes) {
    for (const std::int64_t out : {64, 96, 32}) {
      for (const std::int64_t kept : {out, out - 3}) {
        const Exl2Matrix matrix = random_exl2(groups, out, random);
        const CodePackPlan plan = plan_codes(matrix, kept);
        CodeSource source;
        source.words = matrix.q_weight.data();
        source.word_of_unit = plan.word_of_unit.data();
        source.stored_out = matrix.out;
        ScaleSource scales;
        scales.scale_codes = matrix.q_scale.data();
        scales.stored_out = matrix.out;
        expect_lossless(matrix, plan, pack(plan, source, scales));
      }
    }
  }
}

TEST(CudaPack, GptqLosesNothing) {
  Engine random(6);
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool act_order : {false, true}) {
      for (const GptqZeros zeros : {GptqZeros::kConstant, GptqZeros::kBytes, GptqZeros::kWords}) {
        for (const std::int64_t group_size : {32, 64, 48, 224}) {
          const GptqMatrix matrix =
              random_gptq({bits, 224, 72, group_size, act_order, zeros}, random);
          const CodePackPlan plan = plan_codes(matrix, 72);
          CodeSource source;
          source.words = matrix.qweight.data();
          source.channel_of_slot = plan.channel_of_slot.data();
          source.stored_out = matrix.out;
          ScaleSource scales;
          scales.scales = matrix.scales.data();
          scales.zeros = matrix.zeros.data();
          scales.stored_out = matrix.out;
          scales.zero = plan.zero;
          expect_lossless(matrix, plan, pack(plan, source, scales));
        }
      }
    }
  }
}

TEST(CudaPack, ChunksCoverEveryUnitOnce) {
  Engine random(7);
  const Exl2Matrix matrix = random_exl2({{8, 96}, {6, 64}, {4, 160}, {2, 32}}, 64, random);
  const CodePackPlan plan = plan_codes(matrix, 64);
  std::uint32_t unit = 0;
  std::uint32_t offset = 0;
  for (const Chunk& chunk : plan.chunks) {
    EXPECT_EQ(chunk.first_unit, unit);
    EXPECT_EQ(chunk.offset, offset);
    EXPECT_LE(chunk.units * unit_bytes(chunk.bits), kMaxChunkBytes);
    for (int u = 0; u < chunk.units; ++u) {
      EXPECT_EQ(plan.group_of_unit[unit + static_cast<std::uint32_t>(u)], chunk.group);
    }
    unit += chunk.units;
    offset += static_cast<std::uint32_t>(chunk.units) * chunk.bits;
  }
  EXPECT_EQ(unit, static_cast<std::uint32_t>(plan.units()));
  EXPECT_EQ(std::int64_t{offset} * 256, plan.strip_bytes());
}

// What the file holds, give or take the padding of the last strip and small tables.
TEST(CudaPack, TakesTheFilesBytes) {
  Engine random(8);
  const std::vector<GroupShape> groups(16, GroupShape{4, 128});
  const Exl2Matrix exl2 = random_exl2(groups, 1024, random);
  EXPECT_LE(static_cast<double>(plan_codes(exl2, 1024).device_bytes()),
            1.02 * static_cast<double>(stored_bytes(exl2)));
  const GptqMatrix gptq = random_gptq({4, 2048, 1024, 128, false, GptqZeros::kBytes}, random);
  EXPECT_LE(static_cast<double>(plan_codes(gptq, 1024).device_bytes()),
            1.02 * static_cast<double>(stored_bytes(gptq)));
}

}  // namespace
}  // namespace bl::test
