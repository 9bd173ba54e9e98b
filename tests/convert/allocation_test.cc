// The plan against every possible plan of a small model.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "convert/bit_plan.h"
#include "convert/head_mix.h"

namespace bl::test {
namespace {

ErrorMeasurement make_measurement(int linears, std::int64_t in, std::int64_t out) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> share(0.5, 2.0);
  ErrorMeasurement result;
  for (int i = 0; i < linears; ++i) {
    LinearMeasurement linear{.key = "m" + std::to_string(i), .in = in, .out = out};
    linear.sensitivity = share(random);
    for (const std::int32_t size : {32, 64}) {
      for (const int bits : {8, 6, 5, 4, 3, 2}) {
        WidthCurve curve{bits, size, {}};
        for (std::int64_t run = 0; run < in / 32; ++run) {
          curve.errors.push_back(std::pow(4.0, -bits) * share(random) *
                                 static_cast<double>(in / 32 - run) * (size == 64 ? 1.2 : 1.0));
        }
        linear.curves.push_back(curve);
      }
    }
    result.linears.push_back(linear);
  }
  return result;
}

struct Option {
  double loss = 0.0;
  std::int64_t bits = 0;
};

// Every choice of widths that do not rise, with each group size.
void add_options(const LinearMeasurement& linear, std::int32_t size, GroupList groups, double loss,
                 std::vector<Option>& options) {
  std::int64_t slots = 0;
  for (const SlotGroup& group : groups) slots += group.slots;
  if (slots == linear.in) {
    options.push_back({loss * linear.sensitivity, stored_bits(groups, linear.in, linear.out)});
    return;
  }
  for (const WidthCurve& curve : linear.curves) {
    if (curve.group_size != size) continue;
    if (!groups.empty() && curve.bits > groups.back().bits) continue;
    const auto own = static_cast<std::int32_t>(std::min<std::int64_t>(size, linear.in - slots));
    double sum = loss;
    for (std::int64_t run = 0; run < own / 32; ++run) {
      sum += curve.errors[static_cast<std::size_t>(slots / 32 + run)];
    }
    GroupList longer = groups;
    longer.push_back({curve.bits, own});
    add_options(linear, size, longer, sum, options);
  }
}

TEST(BitPlan, IsNoWorseThanItsBoundSaysAndTheBoundHolds) {
  const ErrorMeasurement measurement = make_measurement(2, 96, 64);
  std::vector<std::vector<Option>> options(2);
  for (std::size_t i = 0; i < 2; ++i) {
    for (const std::int32_t size : {32, 64}) {
      add_options(measurement.linears[i], size, {}, 0.0, options[i]);
    }
  }
  for (const double bits : {2.8, 3.5, 4.0, 5.3, 7.0}) {
    const double budget = std::floor(bits * 2 * 96 * 64);
    double best = 1e30;
    for (const Option& a : options[0]) {
      for (const Option& b : options[1]) {
        if (static_cast<double>(a.bits + b.bits) <= budget) best = std::min(best, a.loss + b.loss);
      }
    }
    const BitPlan plan = plan_bits(measurement, bits);
    EXPECT_LE(plan.bits_per_weight, bits);
    EXPECT_GE(plan.predicted_kl, best * (1 - 1e-9));
    EXPECT_LE(plan.bound, best * (1 + 1e-9));
    EXPECT_GE(plan.bound, 0.7 * best);
  }
}

TEST(BitPlan, HitsTheRateAndNeverLetsWidthsRise) {
  const ErrorMeasurement measurement = make_measurement(40, 512, 96);
  for (const double bits : {2.5, 4.0, 5.0, 6.0}) {
    const BitPlan plan = plan_bits(measurement, bits);
    EXPECT_LE(plan.bits_per_weight, bits);
    EXPECT_GE(plan.bits_per_weight, bits * 0.995);
    double sum = 0.0;
    for (const PlannedLinear& linear : plan.linears) {
      std::int64_t slots = 0;
      for (std::size_t g = 0; g < linear.groups.size(); ++g) {
        slots += linear.groups[g].slots;
        if (g > 0) {
          EXPECT_LE(linear.groups[g].bits, linear.groups[g - 1].bits);
        }
      }
      EXPECT_EQ(slots, 512);
      sum += linear.predicted_kl;
    }
    EXPECT_NEAR(sum, plan.predicted_kl, 1e-9 * sum);
  }
}

TEST(BitPlan, SaysWhatCanBeReached) {
  const ErrorMeasurement measurement = make_measurement(2, 96, 64);
  try {
    plan_bits(measurement, 2.0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("this model takes 2."), std::string::npos)
        << error.what();
  }
}

// docs/formats: the mixes cost what the reference's table says (K = 4096, N = 128256).
TEST(HeadMix, CostsWhatTheTableSays) {
  const std::pair<int, double> rows[] = {{2, 2.73}, {3, 3.28}, {4, 4.44},
                                         {5, 5.19}, {6, 6.34}, {8, 8.03}};
  for (const auto& [bits, rate] : rows) {
    const double stored = static_cast<double>(stored_bits(head_groups(bits, 4096), 4096, 128256));
    EXPECT_NEAR(stored / (4096.0 * 128256.0), rate, 0.006) << bits;
  }
  EXPECT_THROW(head_groups(7, 4096), Error);
}

}  // namespace
}  // namespace bl::test
