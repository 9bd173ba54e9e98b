// Rounding against naive code: GPTQ as its paper writes it, and a search of all 16 scales.

#include "convert/rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "backend/registry.h"
#include "convert/scale_search.h"
#include "format/bit_codec.h"
#include "format/dequantize.h"
#include "format/exl2_scale.h"
#include "rounding_problem.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

float scale_of(const RoundedMatrix& m, std::size_t group, std::int64_t column) {
  return column_scales(m.scale_max[group])[m.scale_codes[group * static_cast<std::size_t>(m.out) +
                                                         static_cast<std::size_t>(column)]];
}

class RoundingTest : public testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  Products products_{*backend_};
};

double loss_of(const RoundedMatrix& m, const TensorView& h, const TensorView& wanted) {
  return decoded_loss(m, decoded_rows(m), h, wanted);
}

TEST_P(RoundingTest, GivesTheCodesOfNaiveGptq) {
  const Problem p = make_problem(192, 32, 5);
  const OrderedHessian hessian = order_hessian(products_, p.sum.view(), p.tokens, 0.01);
  const Tensor wanted = in_slot_order(products_, p.weight.view(), hessian.perm, 32);
  const GroupList groups{{GetParam(), 64}, {GetParam(), 96}, {2, 32}};
  const Rounding::Result result = Rounding(products_, hessian, wanted.view()).run(groups, 0);
  const RoundedMatrix& m = result.matrix;
  for (const std::int64_t column : {0, 13, 31}) {
    Doubles w;
    for (std::int64_t k = 0; k < p.in; ++k) w.push_back(wanted.view().row<float>(k)[column]);
    const std::vector<int> codes = naive_codes(groups, hessian.h.view(), w, [&](std::size_t g) {
      return NaiveGrid{scale_of(m, g, column), exl2_center(groups[g].bits)};
    });
    for (std::int64_t k = 0; k < p.in; ++k) {
      EXPECT_EQ(m.codes[static_cast<std::size_t>(k * m.out + column)],
                codes[static_cast<std::size_t>(k)])
          << "slot " << k << " column " << column;
    }
  }
  // The shares of the slots add up to the loss.
  EXPECT_NEAR(result.error / loss_of(m, hessian.h.view(), wanted.view()), 1.0, 1e-3);
}

TEST_P(RoundingTest, SweepsLowerTheLossToAnOptimumOfEveryCode) {
  const Problem p = make_problem(128, 64, 6);
  const OrderedHessian hessian = order_hessian(products_, p.sum.view(), p.tokens, 0.01);
  const Tensor wanted = in_slot_order(products_, p.weight.view(), hessian.perm, 64);
  Rounding rounding(products_, hessian, wanted.view());
  const GroupList groups = uniform_groups(GetParam(), 64, 128);
  const Rounding::Result first = rounding.run(groups, 0);
  const double before = first.error;
  EXPECT_EQ(rounding.slot_errors(groups), first.slot_errors);
  const Rounding::Result result = rounding.run(groups, 30);
  EXPECT_LT(result.error, before);
  const double loss = loss_of(result.matrix, hessian.h.view(), wanted.view());
  EXPECT_NEAR(result.error / loss, 1.0, 1e-3);
  for (const std::size_t at : {0u, 77u, 4000u, 8191u}) {
    for (const int step : {-1, 1}) {
      RoundedMatrix changed = result.matrix;
      const int code = changed.codes[at] + step;
      if (code < 0 || code >= 1 << GetParam()) continue;
      changed.codes[at] = static_cast<std::uint8_t>(code);
      EXPECT_GE(loss_of(changed, hessian.h.view(), wanted.view()), loss * (1 - 1e-6));
    }
  }
}

TEST_P(RoundingTest, DoesNotDependOnThreads) {
  const Problem p = make_problem(160, 192, 7);
  std::vector<RoundedMatrix> results;
  for (const int threads : {1, 3}) {
    const auto backend = open_backend("cpu", {.threads = threads});
    Products products(*backend);
    const OrderedHessian hessian = order_hessian(products, p.sum.view(), p.tokens, 0.01);
    const Tensor wanted = in_slot_order(products, p.weight.view(), hessian.perm, 192);
    results.push_back(Rounding(products, hessian, wanted.view())
                          .run(uniform_groups(GetParam(), 32, 160), 2)
                          .matrix);
  }
  EXPECT_EQ(results[0].codes, results[1].codes);
  EXPECT_EQ(results[0].scale_codes, results[1].scale_codes);
  EXPECT_EQ(results[0].scale_max, results[1].scale_max);
}

// What the format room reads from the packed tensors is what the quantizer says that it wrote.
TEST_P(RoundingTest, PackedTensorsDecodeToItsOwnMatrix) {
  const Problem p = make_problem(160, 64, 8);
  const OrderedHessian hessian = order_hessian(products_, p.sum.view(), p.tokens, 0.01);
  const Tensor wanted = in_slot_order(products_, p.weight.view(), hessian.perm, 64);
  const GroupList groups{{8, 32}, {GetParam(), 96}, {2, 32}};
  const RoundedMatrix m = Rounding(products_, hessian, wanted.view()).run(groups, 1).matrix;
  const Exl2Tensors packed = pack_exl2(m);
  Exl2Matrix matrix;
  matrix.name = "m";
  matrix.in = m.in;
  matrix.out = m.out;
  std::int32_t slot = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    EXPECT_EQ(packed.q_groups[2 * g], groups[g].bits);
    matrix.groups.push_back(
        {packed.q_groups[2 * g], packed.q_groups[2 * g + 1], slot, groups[g].slots});
    slot += groups[g].slots;
  }
  matrix.q_weight = packed.q_weight;
  matrix.q_scale = packed.q_scale;
  matrix.q_scale_max = packed.q_scale_max;
  matrix.perm.resize(static_cast<std::size_t>(m.in));
  for (std::size_t i = 0; i < packed.q_invperm.size(); ++i) {
    matrix.perm[static_cast<std::size_t>(packed.q_invperm[i])] = static_cast<std::int32_t>(i);
  }
  const std::vector<std::uint16_t> halves = dequantize_to_half(matrix);
  const std::vector<std::uint16_t> own = decoded_rows(m);
  for (std::int64_t i = 0; i < m.in; ++i) {
    for (std::int64_t c = 0; c < m.out; ++c) {
      ASSERT_EQ(own[static_cast<std::size_t>(c * m.in + i)],
                halves[static_cast<std::size_t>(i * m.out + c)]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, RoundingTest, testing::Values(2, 3, 4, 6));

// More columns than are packed together, and every width.
TEST(PackExl2, ReadersFindEveryCode) {
  RoundedMatrix m;
  m.out = 1056;
  m.groups = {{8, 32}, {6, 64}, {5, 32}, {4, 32}, {3, 96}, {2, 32}};
  for (const SlotGroup& group : m.groups) m.in += group.slots;
  m.perm.resize(static_cast<std::size_t>(m.in));
  std::iota(m.perm.begin(), m.perm.end(), 0);
  std::mt19937 random(5);
  for (const SlotGroup& group : m.groups) {
    for (std::int64_t i = 0; i < group.slots * m.out; ++i) {
      m.codes.push_back(static_cast<std::uint8_t>(random() & code_mask(group.bits)));
    }
  }
  m.scale_codes.assign(m.groups.size() * static_cast<std::size_t>(m.out), 7);
  m.scale_max.assign(m.groups.size(), 0x3c00);
  ThreadPool pool(3);
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    const Exl2Tensors packed = pack_exl2(m, HostThreads(threads));
    const std::uint8_t* code = m.codes.data();
    const std::uint32_t* words = packed.q_weight.data();
    for (const SlotGroup& group : m.groups) {
      for (std::int64_t slot = 0; slot < group.slots; ++slot) {
        for (std::int64_t c = 0; c < m.out; ++c) {
          ASSERT_EQ(read_code(words + c, m.out, slot, group.bits), *code++) << group.bits;
        }
      }
      words += group.bits * group.slots / kCodesPerRun * m.out;
    }
    EXPECT_EQ(words, packed.q_weight.data() + packed.q_weight.size());
    EXPECT_EQ(decoded_rows(m, HostThreads(threads)), decoded_rows(m));
  }
}

class ScaleSearch : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  HostThreads threads_{backend_->threads()};
};

// The code of each column is the best of all 16, or as good.
TEST_F(ScaleSearch, FindsTheBestCode) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  constexpr std::int64_t kSlots = 64;
  std::vector<float> weights(kSlots * kPanelColumns), importance(kSlots);
  for (float& w : weights) w = 0.02f * normal(random);
  for (float& v : importance) v = std::exp(normal(random));
  const GroupPanel panel{weights.data(), kPanelColumns, kPanelColumns, importance, 3};
  ErrorCurves curves(kPanelColumns);
  measure_curves(panel, 0, curves);
  const std::uint16_t scale_max = choose_scale_max(threads_, curves);
  std::vector<std::uint8_t> codes(kPanelColumns);
  choose_scale_codes(panel, 0, curves, scale_max, codes.data());
  const auto scales = column_scales(scale_max);
  for (std::int64_t c = 0; c < kPanelColumns; ++c) {
    Doubles errors;
    for (const float scale : scales) {
      double sum = 0.0;
      for (std::int64_t r = 0; r < kSlots; ++r) {
        const float w = weights[static_cast<std::size_t>(r * kPanelColumns + c)];
        const float code = std::clamp(std::nearbyint(w / scale), -4.0f, 3.0f);
        sum += importance[static_cast<std::size_t>(r)] * std::pow(w - code * scale, 2);
      }
      errors.push_back(sum);
    }
    const double least = *std::min_element(errors.begin(), errors.end());
    EXPECT_LE(errors[codes[static_cast<std::size_t>(c)]], 1.05 * least) << "column " << c;
  }
}

TEST_F(ScaleSearch, LeavesAGroupOfZerosAtZero) {
  const std::vector<float> weights(32 * kPanelColumns, 0.0f);
  const std::vector<float> importance(32, 1.0f);
  const GroupPanel panel{weights.data(), kPanelColumns, kPanelColumns, importance, 4};
  ErrorCurves curves(kPanelColumns);
  measure_curves(panel, 0, curves);
  EXPECT_EQ(choose_scale_max(threads_, curves), 0);
}

}  // namespace
}  // namespace bl::test
