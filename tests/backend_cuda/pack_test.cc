// Packing for CUDA, on the host: the functions that the kernels call, word by word.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "backend/cuda/cuda_planner.h"
#include "backend/cuda/layout/code_pack.h"
#include "backend/cuda/layout/code_pack_plan.h"
#include "backend/cuda/layout/packed_size.h"
#include "backend/cuda/layout/unpack.h"
#include "backend/cuda/weights/column_slice.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "format/dequantize.h"
#include "format/select_outputs.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using namespace cuda;

struct Packed {
  std::vector<std::uint32_t> codes;
  std::vector<std::uint32_t> scales;
};

// Returns the codes of a k_step, [32 k][16 columns], as the kernel stages them.
std::vector<std::uint8_t> staged_codes(const CodeSource& source, std::int64_t k_step, int bits,
                                       std::int64_t first_column) {
  std::vector<std::uint8_t> codes;
  for (int k = 0; k < kKStepSize; ++k) {
    for (int c = 0; c < kNTileColumns; ++c) {
      codes.push_back(
          static_cast<std::uint8_t>(source_code(source, k_step, bits, k, first_column + c)));
    }
  }
  return codes;
}

Packed pack(const CodePackPlan& plan, const CodeSource& source, const ScaleSource& scales) {
  Packed packed;
  for (std::int64_t n_tile = 0; n_tile < plan.n_tiles(); ++n_tile) {
    const std::int64_t column = n_tile * kNTileColumns;
    for (std::int64_t u = 0; u < plan.k_steps(); ++u) {
      const int bits = plan.bits_of_k_step[static_cast<std::size_t>(u)];
      const std::vector<std::uint8_t> codes = staged_codes(source, u, bits, column);
      for (int word = 0; word < k_step_bytes(bits) / 4; ++word) {
        packed.codes.push_back(packed_word(codes.data(), kNTileColumns, bits, word));
      }
    }
    for (std::int64_t g = 0; g < plan.groups; ++g) {
      for (int word = 0; word < scale_bytes(plan.kind) / 4; ++word) {
        packed.scales.push_back(packed_scale_word(scales, plan.kind, g, column, word));
      }
    }
    packed.scales.resize(
        static_cast<std::size_t>((n_tile + 1) * scale_stride(plan.kind, plan.groups) / 4));
  }
  EXPECT_EQ(packed.codes.size() * 4, plan.code_bytes());
  EXPECT_EQ(packed.scales.size() * 4, plan.scale_bytes_total());
  return packed;
}

Packed pack(const Exl2Matrix& matrix, const CodePackPlan& plan) {
  CodeSource source;
  source.words = matrix.q_weight.data();
  source.word_of_k_step = plan.word_of_k_step.data();
  source.stored_out = matrix.out;
  ScaleSource scales;
  scales.scale_codes = matrix.q_scale.data();
  scales.stored_out = matrix.out;
  return pack(plan, source, scales);
}

Packed pack(const GptqMatrix& matrix, const CodePackPlan& plan) {
  CodeSource source;
  source.words = matrix.qweight.data();
  source.feature_of_k = plan.feature_of_k.data();
  source.stored_out = matrix.out;
  ScaleSource scales;
  scales.scales = matrix.scales.data();
  scales.zeros = matrix.zeros.data();
  scales.stored_out = matrix.out;
  scales.zero = plan.zero;
  return pack(plan, source, scales);
}

// Compares the first plan.out columns of the dequantized matrix with what unpacking gives.
void expect_lossless(const WeightMatrix& matrix, const CodePackPlan& plan, const Packed& packed) {
  const std::vector<float> back =
      unpack_codes(plan, {packed.codes, packed.scales, plan.feature_of_k});
  const std::vector<std::uint16_t> expected = dequantize_to_half(matrix);
  ASSERT_EQ(back.size(), static_cast<std::size_t>(plan.in * plan.out));
  for (std::int64_t i = 0; i < plan.in; ++i) {
    for (std::int64_t c = 0; c < plan.out; ++c) {
      ASSERT_EQ(back[static_cast<std::size_t>(i * plan.out + c)],
                half_to_float(expected[static_cast<std::size_t>(i * plan.stored_out + c)]))
          << "feature " << i << ", column " << c;
    }
  }
}

// Every bit of a k_step belongs to one code, and field_of() and field_at() agree.
TEST(CudaPack, FieldsAreABijection) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    SCOPED_TRACE(bits);
    std::set<std::pair<int, int>> taken_bits;
    for (int lane = 0; lane < 32; ++lane) {
      for (int code = 0; code < 16; ++code) {
        const CodeName name{code / 8, code / 4 % 2, code / 2 % 2, code % 2};
        std::uint32_t seen = 0;  // bits of the code
        for (int i = 0; i < field_count(bits, name); ++i) {
          const CodeField field = field_of(bits, lane, name, i);
          EXPECT_LT(field.word, 16 * bits);
          for (int b = 0; b < field.bits; ++b) {
            EXPECT_TRUE(taken_bits.insert({field.word, field.bit + b}).second);
            seen ^= 1u << (field.shift + b);
          }
          const PlacedField back = field_at(bits, field.word, field.bit);
          EXPECT_EQ(back.lane, lane);
          EXPECT_EQ(back.shift, field.shift);
          EXPECT_EQ(back.bits, field.bits);
          EXPECT_EQ(column_in_step(back.lane, back.name), column_in_step(lane, name));
          EXPECT_EQ(k_in_step(back.lane, back.name), k_in_step(lane, name));
        }
        EXPECT_EQ(seen, (1u << bits) - 1);
      }
    }
    EXPECT_EQ(taken_bits.size(), 32u * 16u * static_cast<unsigned>(bits));
  }
}

// Register 2s + r, half e of lane t is k = 16s + 8r + 2t + e, as in operand A.
TEST(CudaPack, FragmentOffsetsAreThoseOfTheTensorCores) {
  for (int k = 0; k < 3 * kKStepSize; ++k) {
    const int place = fragment_offset(k);
    EXPECT_EQ(place / kKStepSize, k / kKStepSize);
    const int t = place % kKStepSize / 8;
    const int s = place % 8 / 4;
    const int r = place % 4 / 2;
    const CodeName name{0, s, r, place % 2};
    EXPECT_EQ(k_in_step(t, name), k % kKStepSize);
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
      for (const std::int64_t kept : {out, out - 3, out - 16}) {
        const Exl2Matrix matrix = random_exl2(groups, out, random);
        const CodePackPlan plan = plan_codes(matrix, kept);
        expect_lossless(matrix, plan, pack(matrix, plan));
      }
    }
  }
}

TEST(CudaPack, GptqLosesNothing) {
  Engine random(6);
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool act_order : {false, true}) {
      for (const GptqZeros zeros : {GptqZeros::kConstant, GptqZeros::kBytes, GptqZeros::kWords}) {
        for (const std::int64_t group_size : {32, 48, 64, 128, 224}) {
          const GptqMatrix matrix =
              random_gptq({bits, 224, 72, group_size, act_order, zeros}, random);
          for (const std::int64_t kept : {72, 48}) {
            const CodePackPlan plan = plan_codes(matrix, kept);
            expect_lossless(matrix, plan, pack(matrix, plan));
          }
        }
      }
    }
  }
}

TEST(CudaPack, ChoosesTheSmallestKindOfZeroPoints) {
  Engine random(9);
  const auto kind = [&](int bits, GptqZeros zeros) {
    return plan_codes(random_gptq({bits, 64, 64, 32, false, zeros}, random), 64).kind;
  };
  EXPECT_EQ(kind(4, GptqZeros::kConstant), ScaleKind::kGptq);
  EXPECT_EQ(kind(4, GptqZeros::kBytes), ScaleKind::kGptqZeros4);
  EXPECT_EQ(kind(4, GptqZeros::kWords), ScaleKind::kGptqZeros16);
}

// Groups without features, which an act-order table may have.
TEST(CudaPack, EmptyGroupsLoseNothing) {
  Engine random(10);
  const GptqMatrix matrix = random_gptq_with_empty_groups(random);
  const CodePackPlan plan = plan_codes(matrix, 32);
  expect_lossless(matrix, plan, pack(matrix, plan));
}

TEST(CudaPack, OffsetsOfFeaturesAreThoseOfTheirK) {
  Engine random(11);
  const GptqMatrix gptq = random_gptq({4, 224, 32, 48, true, GptqZeros::kBytes}, random);
  const Exl2Matrix exl2 = random_exl2({{4, 96}, {2, 64}}, 32, random);
  for (const CodePackPlan& plan : {plan_codes(gptq, 32), plan_codes(exl2, 32)}) {
    ASSERT_EQ(plan.fragment_offset_of_feature.size(), static_cast<std::size_t>(plan.in));
    for (std::size_t k = 0; k < plan.feature_of_k.size(); ++k) {
      const std::int32_t feature = plan.feature_of_k[k];
      if (feature < 0) continue;
      EXPECT_EQ(plan.fragment_offset_of_feature[static_cast<std::size_t>(feature)],
                fragment_offset(static_cast<int>(k)));
    }
  }
  EXPECT_EQ(plan_codes(random_exl2({{2, 65536}}, 32, random), 32).fragment_offset_of_feature.size(),
            65536u);
  EXPECT_TRUE(
      plan_codes(random_exl2({{2, 65568}}, 32, random), 32).fragment_offset_of_feature.empty());
  Exl2Matrix twice = random_exl2({{2, 64}}, 32, random);
  twice.perm[1] = twice.perm[0];
  EXPECT_TRUE(plan_codes(twice, 32).fragment_offset_of_feature.empty());
}

template <class T>
const T* at(const std::vector<std::byte>& slice, std::size_t offset) {
  return reinterpret_cast<const T*>(slice.data() + offset);
}

// Packs slice by slice, as the card does: each slice is packed like a matrix of its own.
Packed pack_in_slices(const FileCodes& file, const CodePackPlan& plan, std::int64_t columns) {
  ThreadPool threads(2);
  Packed all;
  const std::int64_t wanted = std::min(plan.n_tiles() * kNTileColumns, plan.stored_out);
  for (std::int64_t first = 0; first < wanted; first += columns) {
    const std::int64_t count = std::min(columns, wanted - first);
    const SliceLayout layout = slice_layout(file, plan, count);
    std::vector<std::byte> slice(layout.total);
    copy_slice(file, plan, {first, count}, slice.data(), threads);
    CodePackPlan slice_plan = plan;
    slice_plan.out = std::min(count, plan.out - first);
    slice_plan.stored_out = count;
    const auto k_steps = static_cast<std::size_t>(plan.k_steps());
    const auto* bits = at<std::int32_t>(slice, layout.bits_of_k_step);
    slice_plan.bits_of_k_step.assign(bits, bits + k_steps);
    const auto* offsets = at<std::int64_t>(slice, layout.offset_of_k_step);
    EXPECT_EQ(std::vector<std::int64_t>(offsets, offsets + k_steps), plan.k_step_offsets());
    CodeSource source;
    source.words = at<std::uint32_t>(slice, layout.words);
    source.feature_of_k = plan.feature_of_k.data();
    if (!plan.word_of_k_step.empty()) {
      source.word_of_k_step = at<std::int32_t>(slice, layout.word_of_k_step);
    }
    source.stored_out = count;
    ScaleSource scales;
    scales.scale_codes = at<std::uint32_t>(slice, layout.scale_codes);
    scales.scales = at<std::uint16_t>(slice, layout.scales);
    scales.zeros = at<std::uint16_t>(slice, layout.zeros);
    scales.stored_out = count;
    scales.zero = plan.zero;
    const Packed packed = pack(slice_plan, source, scales);
    all.codes.insert(all.codes.end(), packed.codes.begin(), packed.codes.end());
    all.scales.insert(all.scales.end(), packed.scales.begin(), packed.scales.end());
  }
  return all;
}

TEST(CudaPack, SlicesOfColumnsGiveWhatTheWholeGives) {
  Engine random(12);
  const Exl2Matrix exl2 = random_exl2({{5, 32}, {4, 96}, {2, 64}}, 160, random);
  const CodePackPlan exl2_plan = plan_codes(exl2, 150);
  const Packed exl2_whole = pack(exl2, exl2_plan);
  const FileCodes exl2_file{exl2.q_weight, exl2.q_scale, {}, {}, exl2.out};
  const GptqMatrix gptq = random_gptq({4, 224, 72, 48, true, GptqZeros::kBytes}, random);
  const CodePackPlan gptq_plan = plan_codes(gptq, 72);
  const Packed gptq_whole = pack(gptq, gptq_plan);
  const FileCodes gptq_file{gptq.qweight, {}, gptq.scales, gptq.zeros, gptq.out};
  for (const std::int64_t columns : {16, 32, 64, 1024}) {
    const Packed of_exl2 = pack_in_slices(exl2_file, exl2_plan, columns);
    EXPECT_EQ(of_exl2.codes, exl2_whole.codes) << columns;
    EXPECT_EQ(of_exl2.scales, exl2_whole.scales) << columns;
    const Packed of_gptq = pack_in_slices(gptq_file, gptq_plan, columns);
    EXPECT_EQ(of_gptq.codes, gptq_whole.codes) << columns;
    EXPECT_EQ(of_gptq.scales, gptq_whole.scales) << columns;
  }
}

// Columns in another order than the file's give the matrix that has them in this order.
TEST(CudaPack, ColumnsInTheReadersOrder) {
  Engine random(15);
  std::vector<std::int32_t> columns(160);
  std::iota(columns.begin(), columns.end(), 0);
  std::shuffle(columns.begin(), columns.end(), random);
  const Exl2Matrix exl2 = random_exl2({{5, 32}, {4, 96}, {2, 64}}, 192, random);
  const FileCodes exl2_file{exl2.q_weight, exl2.q_scale, {}, {}, exl2.out, columns};
  const auto exl2_there = std::get<Exl2Matrix>(select_outputs(exl2, columns));
  const Packed exl2_whole = pack(exl2_there, plan_codes(exl2_there, 160));
  const GptqMatrix gptq = random_gptq({4, 224, 160, 48, true, GptqZeros::kBytes}, random);
  const std::span<const std::int32_t> some = std::span(columns).first(72);
  const FileCodes gptq_file{gptq.qweight, {}, gptq.scales, gptq.zeros, gptq.out, some};
  const auto gptq_there = std::get<GptqMatrix>(select_outputs(gptq, some));
  const Packed gptq_whole = pack(gptq_there, plan_codes(gptq_there, 72));
  for (const std::int64_t at_once : {16, 32, 64, 1024}) {
    const Packed of_exl2 = pack_in_slices(exl2_file, plan_codes(exl2, 160), at_once);
    EXPECT_EQ(of_exl2.codes, exl2_whole.codes) << at_once;
    EXPECT_EQ(of_exl2.scales, exl2_whole.scales) << at_once;
    const CodePackPlan gptq_plan = plan_codes(gptq, 72);
    const Packed of_gptq = pack_in_slices(gptq_file, gptq_plan, at_once);
    EXPECT_EQ(unpack_codes(gptq_plan, {of_gptq.codes, of_gptq.scales, gptq_plan.feature_of_k}),
              unpack_codes(plan_codes(gptq_there, 72),
                           {gptq_whole.codes, gptq_whole.scales, gptq_plan.feature_of_k}))
        << at_once;
  }
}

TEST(CudaPack, SlicesAreAsWideAsFits) {
  Engine random(13);
  const Exl2Matrix exl2 = random_exl2({{4, 96}, {2, 64}}, 160, random);
  const CodePackPlan plan = plan_codes(exl2, 160);
  const FileCodes file{exl2.q_weight, exl2.q_scale, {}, {}, exl2.out};
  const std::size_t of_64 = slice_layout(file, plan, 64).total;
  EXPECT_EQ(columns_that_fit(file, plan, of_64), 64);
  EXPECT_EQ(columns_that_fit(file, plan, of_64 - 1), 48);
  EXPECT_EQ(columns_that_fit(file, plan, 1), kNTileColumns);
  EXPECT_EQ(columns_that_fit(file, plan, 1 << 30), 160);
}

// K_steps are padded where the features of a group do not fill them.
TEST(CudaPlan, InputsAreCountedAsPacked) {
  Engine random(14);
  const GptqMatrix gptq = random_gptq({4, 224, 32, 48, true, GptqZeros::kBytes}, random);
  EXPECT_EQ(packed_inputs(gptq), plan_codes(gptq, 32).k_steps() * kKStepSize);
  const Exl2Matrix exl2 = random_exl2({{4, 96}, {2, 64}}, 160, random);
  EXPECT_EQ(packed_inputs(exl2), 160);
}

// A planner only plans.
TEST(CudaPlan, WithoutACardNothingIsDone) {
  CudaPlanner planner;
  EXPECT_THROW(static_cast<void>(planner.allocate(1)), Error);
  const std::size_t short_step = planner.scratch_bytes({.tokens = 1, .max_in = 4096});
  const std::size_t long_step = planner.scratch_bytes({.tokens = 2048, .max_in = 4096});
  // Permuted activations in binary16, normalised rows in F32, expanded weights.
  EXPECT_GT(long_step, short_step + 2048 * 4096 * 6);
  EXPECT_EQ(planner.weight_bytes(1), 256u);
}

// A packed matrix takes the file's bytes, plus small tables and the padding of the last n_tile.
TEST(CudaPack, TakesTheFilesBytes) {
  Engine random(8);
  const std::vector<GroupShape> groups(16, GroupShape{4, 128});
  const Exl2Matrix exl2 = random_exl2(groups, 1024, random);
  EXPECT_LE(static_cast<double>(plan_codes(exl2, 1024).layout().total),
            1.02 * static_cast<double>(stored_bytes(exl2)));
  const GptqMatrix gptq = random_gptq({4, 2048, 1024, 128, false, GptqZeros::kBytes}, random);
  EXPECT_LE(static_cast<double>(plan_codes(gptq, 1024).layout().total),
            1.02 * static_cast<double>(stored_bytes(gptq)));
}

}  // namespace
}  // namespace bl::test
