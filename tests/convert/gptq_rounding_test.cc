// Rounding for GPTQ against naive code, and what the format's reader makes of the tensors.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/registry.h"
#include "convert/gptq_grids.h"
#include "convert/gptq_rounding.h"
#include "convert/packed_tensors.h"
#include "format/dequantize.h"
#include "format/safetensors_file.h"
#include "rounding_problem.h"
#include "support/data.h"
#include "support/error_of.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

// Every combination of what a checkpoint may hold, for inputs of 160 channels: with groups of 64
// the last one is short.
std::vector<GptqLayout> all_layouts() {
  std::vector<GptqLayout> layouts;
  for (const int bits : {2, 3, 4, 8}) {
    for (const std::int64_t group : {-1, 32, 64, 160}) {
      for (int flags = 0; flags < 12; ++flags) {
        layouts.push_back({.bits = bits,
                           .group_size = group,
                           .symmetric = flags % 2 == 0,
                           .act_order = flags / 4 == 1,
                           .natural_order = flags / 4 == 2,
                           .v2 = flags / 2 % 2 == 1});
      }
    }
  }
  return layouts;
}

std::string text_of(const GptqLayout& layout) {
  return fmt::format("{} bits, group {}, sym {}, act-order {}, natural {}, v2 {}", layout.bits,
                     layout.group_size, layout.symmetric, layout.act_order, layout.natural_order,
                     layout.v2);
}

class GptqRounding : public testing::Test {
 protected:
  OrderedHessian hessian_of(const Problem& p, const GptqLayout& layout) {
    return order_hessian(products_, p.sum.view(), p.tokens, 0.01, layout.slot_order(p.in));
  }
  Tensor wanted_of(const Problem& p, const OrderedHessian& hessian) {
    return in_slot_order(products_, p.weight.view(), hessian.perm, p.out);
  }

  std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 2});
  Products products_{*backend_};
};

TEST_F(GptqRounding, GivesTheCodesOfNaiveGptq) {
  const Problem p = make_problem(64, 32, 5);
  for (const GptqLayout& layout : all_layouts()) {
    if (layout.group_size > 32) continue;
    const OrderedHessian hessian = hessian_of(p, layout);
    const Tensor wanted = wanted_of(p, hessian);
    const GptqRounded m = round_gptq(products_, hessian, wanted.view(), layout, 0).matrix;
    const std::int64_t column = layout.bits + (layout.v2 ? 20 : 0);
    Doubles w;
    for (std::int64_t k = 0; k < p.in; ++k) w.push_back(wanted.view().row<float>(k)[column]);
    const auto grid_of = [&](std::size_t g) {
      const std::size_t at = g * 32 + static_cast<std::size_t>(column);
      return NaiveGrid{half_to_float(m.scales[at]), m.zeros[at]};
    };
    const std::vector<int> codes = naive_codes(m.groups, hessian.h.view(), w, grid_of);
    for (std::int64_t k = 0; k < p.in; ++k) {
      ASSERT_EQ(m.codes[static_cast<std::size_t>(k * m.out + column)],
                codes[static_cast<std::size_t>(k)])
          << text_of(layout) << " slot " << k;
    }
  }
}

TEST_F(GptqRounding, ReadersDecodeWhatRoundingSays) {
  const Problem p = make_problem(160, 64, 8);
  const auto folder = scratch_dir("gptq-rounding");
  for (const GptqLayout& layout : all_layouts()) {
    const OrderedHessian hessian = hessian_of(p, layout);
    const GptqRounded m =
        round_gptq(products_, hessian, wanted_of(p, hessian).view(), layout, 1).matrix;
    const std::vector<PackedTensor> tensors = packed_tensors("m", m);
    std::map<std::string, std::span<const std::byte>> bytes;
    std::vector<TensorPlan> plans;
    for (const PackedTensor& tensor : tensors) {
      bytes[tensor.plan.name] = tensor.bytes;
      plans.push_back(tensor.plan);
    }
    SafetensorsWriter writer(folder / "m.safetensors", std::move(plans));
    for (const TensorPlan& plan : writer.tensors()) writer.write(bytes.at(plan.name));
    writer.commit();
    const SafetensorsFile file(folder / "m.safetensors");
    const WeightMatrix read = load_packed(file, "m", layout.v2 ? "gptq_v2" : "gptq");
    const std::vector<std::uint16_t> halves = dequantize_to_half(read);
    const std::vector<std::uint16_t> own = decoded_rows(m);
    for (std::int64_t i = 0; i < m.in; ++i) {
      for (std::int64_t c = 0; c < m.out; ++c) {
        ASSERT_EQ(own[static_cast<std::size_t>(c * m.in + i)],
                  halves[static_cast<std::size_t>(i * m.out + c)])
            << text_of(layout) << " channel " << i << " column " << c;
      }
    }
    const auto& matrix = std::get<GptqMatrix>(read);
    EXPECT_EQ(matrix.bits, layout.bits);
    for (std::size_t i = 0; i < matrix.group_of.size() && !layout.act_order; ++i) {
      ASSERT_EQ(matrix.group_of[i], static_cast<std::int64_t>(i) / layout.channels_per_group(p.in));
    }
  }
}

TEST_F(GptqRounding, SweepsLowerTheLoss) {
  const Problem p = make_problem(128, 64, 6);
  for (const bool symmetric : {false, true}) {
    for (const int bits : {2, 4}) {
      const GptqLayout layout{.bits = bits, .group_size = 64, .symmetric = symmetric};
      const OrderedHessian hessian = hessian_of(p, layout);
      const Tensor wanted = wanted_of(p, hessian);
      const double before = round_gptq(products_, hessian, wanted.view(), layout, 0).error;
      const auto after = round_gptq(products_, hessian, wanted.view(), layout, 10);
      EXPECT_LT(after.error, (bits == 2 ? 0.9 : 0.95) * before) << text_of(layout);
      const double loss =
          decoded_loss(after.matrix, decoded_rows(after.matrix), hessian.h.view(), wanted.view());
      EXPECT_NEAR(after.error / loss, 1.0, 1e-3) << text_of(layout);
    }
  }
}

// When sweeps have nothing left to change, no scale and no zero point alone would lower the loss.
TEST_F(GptqRounding, SweepsEndAtAnOptimumOfEveryScale) {
  const Problem p = make_problem(128, 64, 6);
  const GptqLayout layout{.bits = 3, .group_size = 64, .symmetric = false};
  const OrderedHessian hessian = hessian_of(p, layout);
  const Tensor wanted = wanted_of(p, hessian);
  const GptqRounded m = round_gptq(products_, hessian, wanted.view(), layout, 30).matrix;
  const auto loss = [&](const GptqRounded& matrix) {
    return decoded_loss(matrix, decoded_rows(matrix), hessian.h.view(), wanted.view());
  };
  const double least = loss(m);
  for (const std::size_t at : {0u, 29u, 63u, 64u, 100u, 127u}) {
    for (const float ratio : {0.97f, 1.03f}) {
      GptqRounded changed = m;
      changed.scales[at] = float_to_half(half_to_float(m.scales[at]) * ratio);
      EXPECT_GT(loss(changed), least) << "scale " << at << " times " << ratio;
    }
    for (const int shift : {-1, 1}) {
      GptqRounded changed = m;
      changed.zeros[at] = static_cast<std::uint8_t>(m.zeros[at] + shift);
      EXPECT_GT(loss(changed), least) << "zero point " << at << " plus " << shift;
    }
  }
}

TEST_F(GptqRounding, DoesNotDependOnThreads) {
  const Problem p = make_problem(160, 192, 7);
  const GptqLayout layout{.bits = 3, .group_size = 32, .symmetric = false};
  std::vector<GptqRounded> results;
  for (const int threads : {1, 3}) {
    const auto backend = open_backend("cpu", {.threads = threads});
    Products products(*backend);
    const OrderedHessian hessian = order_hessian(products, p.sum.view(), p.tokens, 0.01);
    const Tensor wanted = in_slot_order(products, p.weight.view(), hessian.perm, p.out);
    results.push_back(round_gptq(products, hessian, wanted.view(), layout, 2).matrix);
  }
  EXPECT_EQ(results[0].codes, results[1].codes);
  EXPECT_EQ(results[0].scales, results[1].scales);
  EXPECT_EQ(results[0].zeros, results[1].zeros);
}

// The weighted error of one column on one grid, in doubles.
double column_error(const GroupPanel& panel, std::size_t column, const NaiveGrid& grid) {
  double sum = 0.0;
  const int last = (1 << panel.bits) - 1;
  for (std::size_t r = 0; r < panel.importance.size(); ++r) {
    const float w = panel.weights[r * static_cast<std::size_t>(panel.stride) + column];
    const double code = std::clamp(std::nearbyint(1.0 * w / grid.scale), -1.0 * grid.zero,
                                   1.0 * (last - grid.zero));
    sum += panel.importance[r] * std::pow(w - code * grid.scale, 2);
  }
  return sum;
}

// No grid of a fine search over scales and all zero points is much better than the one chosen.
TEST_F(GptqRounding, SearchFindsAGoodGrid) {
  const Problem p = make_problem(64, 64, 9);
  std::vector<float> weights, importance;
  for (std::int64_t r = 0; r < 64; ++r) {
    importance.push_back(std::exp(std::sin(static_cast<float>(r))));
    for (std::int64_t c = 0; c < 64; ++c) {
      // Weights that are not centred, so that a zero point is worth something.
      weights.push_back(p.weight.view().row<float>(c)[r] + 0.001f * static_cast<float>(c));
    }
  }
  for (const bool symmetric : {false, true}) {
    const GptqLayout layout{.bits = 3, .symmetric = symmetric};
    const GptqGridRules rules = grid_rules(layout);
    GptqGrids grids(rules, 1, 64);
    grids.search(HostThreads(nullptr), 0, {weights.data(), 64, importance});
    const GroupPanel panel{weights.data(), 64, 64, importance, 3};
    const ColumnGrids chosen = grids.grids(0, {0, 64});
    for (std::size_t c = 0; c < 64; ++c) {
      double least = std::numeric_limits<double>::infinity();
      for (int zero = symmetric ? 4 : 1; zero <= (symmetric ? 4 : 7); ++zero) {
        for (float scale = 0.01f; scale < 0.12f; scale *= 1.01f) {
          least = std::min(least, column_error(panel, c, {scale, zero}));
        }
      }
      const NaiveGrid own{chosen.scale[c], static_cast<int>(chosen.zero[c])};
      EXPECT_LE(column_error(panel, c, own), 1.06 * least) << "column " << c << symmetric;
    }
  }
}

TEST_F(GptqRounding, MinMaxSpansTheWeights) {
  std::vector<float> weights(32 * 64, 0.0f);
  weights[3 * 64] = -0.5f;
  weights[9 * 64] = 1.0f;
  weights[4 * 64 + 1] = 0.25f;
  const std::vector<float> importance(32, 1.0f);
  const auto grid_of = [&](bool symmetric, std::size_t column) {
    const GptqLayout layout{.bits = 4, .symmetric = symmetric, .v2 = true, .min_max = true};
    const GptqGridRules rules = grid_rules(layout);
    GptqGrids grids(rules, 1, 64);
    grids.search(HostThreads(nullptr), 0, {weights.data(), 64, importance});
    const ColumnGrids chosen = grids.grids(0, {0, 64});
    return std::pair(chosen.scale[column], chosen.zero[column]);
  };
  const auto half = [](float value) { return half_to_float(float_to_half(value)); };
  EXPECT_EQ(grid_of(false, 0), std::pair(half(1.5f / 15.0f), 5.0f));
  EXPECT_EQ(grid_of(true, 0), std::pair(half(2.0f / 15.0f), 8.0f));
  EXPECT_EQ(grid_of(false, 1), std::pair(half(0.25f / 15.0f), 0.0f));
  EXPECT_EQ(grid_of(false, 2), std::pair(1.0f, 0.0f));
}

TEST_F(GptqRounding, RefusesWhatTheFormatDoesNotHave) {
  const auto of_layout = [](const GptqLayout& layout) {
    return error_of([&] { check_gptq_layout(layout); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_NE(of_layout({.bits = 5}).find("2, 3, 4 or 8"), std::string::npos);
  EXPECT_NE(of_layout({.group_size = 48}).find("--group_size"), std::string::npos);
  EXPECT_TRUE(fits_gptq(64, 96));
  EXPECT_FALSE(fits_gptq(64, 48));
  EXPECT_FALSE(fits_gptq(48, 64));
}

}  // namespace
}  // namespace bl::test
