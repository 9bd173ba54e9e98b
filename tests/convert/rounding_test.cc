// Rounding against naive code: GPTQ as its paper writes it, and a search of all 16 scales.

#include "convert/rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "backend/registry.h"
#include "convert/scale_search.h"
#include "format/dequantize.h"
#include "format/exl2_scale.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

using Doubles = std::vector<double>;

struct Problem {
  std::int64_t in = 0;
  std::int64_t out = 0;
  Tensor sum;     // [in, in]
  Tensor weight;  // [out, in]
  std::int64_t tokens = 256;
};

// Inputs whose channels differ in size and hang together.
Problem make_problem(std::int64_t in, std::int64_t out, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Problem p{in, out, zero_matrix(in, in), zero_matrix(out, in)};
  std::vector<float> x(static_cast<std::size_t>(in));
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    float shared = normal(random);
    for (std::int64_t i = 0; i < in; ++i) {
      const float size = 0.2f + static_cast<float>((i * 7) % in) / static_cast<float>(in);
      x[static_cast<std::size_t>(i)] = size * (normal(random) + shared);
      shared = 0.9f * shared + 0.1f * normal(random);
    }
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t j = 0; j < in; ++j) {
        p.sum.view().row<float>(i)[j] +=
            x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(j)];
      }
    }
  }
  for (std::int64_t c = 0; c < out; ++c) {
    for (std::int64_t i = 0; i < in; ++i) p.weight.view().row<float>(c)[i] = 0.05f * normal(random);
  }
  return p;
}

// The inverse by Gauss-Jordan elimination.
Doubles inverse_of(Doubles a, std::size_t n) {
  Doubles result(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) result[i * n + i] = 1.0;
  for (std::size_t i = 0; i < n; ++i) {
    const double pivot = a[i * n + i];
    for (std::size_t j = 0; j < n; ++j) {
      a[i * n + j] /= pivot;
      result[i * n + j] /= pivot;
    }
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = a[r * n + i];
      for (std::size_t j = 0; j < n; ++j) {
        a[r * n + j] -= factor * a[i * n + j];
        result[r * n + j] -= factor * result[i * n + j];
      }
    }
  }
  return result;
}

float scale_of(const RoundedMatrix& m, std::size_t group, std::int64_t column) {
  return column_scales(m.scale_max[group])[m.scale_codes[group * static_cast<std::size_t>(m.out) +
                                                         static_cast<std::size_t>(column)]];
}

// Optimal brain quantization of one column with given scales: after each slot the inverse Hessian
// of the slots that are left is found anew.
std::vector<int> naive_codes(const RoundedMatrix& m, const TensorView& h, Doubles w,
                             std::int64_t column) {
  std::vector<int> codes;
  std::size_t slot = 0;
  for (std::size_t g = 0; g < m.groups.size(); ++g) {
    const int center = exl2_center(m.groups[g].bits);
    const float scale = scale_of(m, g, column);
    for (std::int32_t r = 0; r < m.groups[g].slots; ++r, ++slot) {
      const std::size_t left = w.size() - slot;
      Doubles rest(left * left);
      for (std::size_t i = 0; i < left; ++i) {
        for (std::size_t j = 0; j < left; ++j) {
          rest[i * left + j] = h.row<float>(static_cast<std::int64_t>(slot + i))[slot + j];
        }
      }
      const Doubles inverse = inverse_of(rest, left);
      const double code = std::clamp(std::nearbyint(w[slot] / scale), -1.0 * center, center - 1.0);
      const double value = half_to_float(float_to_half(static_cast<float>(code) * scale));
      codes.push_back(static_cast<int>(code) + center);
      const double error = (w[slot] - value) / inverse[0];
      for (std::size_t i = 0; i < left; ++i) w[slot + i] -= error * inverse[i];
    }
  }
  return codes;
}

class RoundingTest : public testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  Products products_{*backend_};
};

double loss_of(const RoundedMatrix& m, const TensorView& h, const TensorView& wanted) {
  const std::vector<std::uint16_t> rows = decoded_rows(m);
  double loss = 0.0;
  for (std::int64_t c = 0; c < m.out; ++c) {
    Doubles error;
    for (std::int64_t k = 0; k < m.in; ++k) {
      const auto at = static_cast<std::size_t>(c * m.in + m.perm[static_cast<std::size_t>(k)]);
      error.push_back(half_to_float(rows[at]) - wanted.row<float>(k)[c]);
    }
    for (std::int64_t i = 0; i < m.in; ++i) {
      for (std::int64_t j = 0; j < m.in; ++j) {
        loss += error[static_cast<std::size_t>(i)] * h.row<float>(i)[j] *
                error[static_cast<std::size_t>(j)];
      }
    }
  }
  return loss;
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
    const std::vector<int> codes = naive_codes(m, hessian.h.view(), w, column);
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
  const double before = rounding.run(groups, 0).error;
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

// The code of each column is the best of all 16, or as good.
TEST(ScaleSearch, FindsTheBestCode) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  constexpr std::int64_t kSlots = 64;
  std::vector<float> weights(kSlots * kPanelColumns), importance(kSlots);
  for (float& w : weights) w = 0.02f * normal(random);
  for (float& v : importance) v = std::exp(normal(random));
  const GroupPanel panel{weights.data(), kPanelColumns, kPanelColumns, importance, 3};
  ErrorCurves curves(kPanelColumns);
  measure_curves(panel, 0, curves);
  const std::uint16_t scale_max = choose_scale_max(curves);
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

TEST(ScaleSearch, LeavesAGroupOfZerosAtZero) {
  const std::vector<float> weights(32 * kPanelColumns, 0.0f);
  const std::vector<float> importance(32, 1.0f);
  const GroupPanel panel{weights.data(), kPanelColumns, kPanelColumns, importance, 4};
  ErrorCurves curves(kPanelColumns);
  measure_curves(panel, 0, curves);
  EXPECT_EQ(choose_scale_max(curves), 0);
}

}  // namespace
}  // namespace bl::test
