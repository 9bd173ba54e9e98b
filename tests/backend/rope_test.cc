#include <gtest/gtest.h>

#include <cmath>

#include "backend/device.h"

namespace bl::test {
namespace {

struct RopeCase {
  std::int64_t heads, head_dim, rotated;
  RopeStyle style;
};

class RopeOp : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Backends, RopeOp, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

TEST_P(RopeOp, RotatesPairs) {
  Device device(GetParam());
  Random random(3);
  const std::vector<std::int32_t> positions{0, 1, 7, 255, 256, 2047, 131071};
  const std::vector<std::int32_t> variant{0, 1, 0, 1, 1, 0, 0};
  const auto tokens = static_cast<std::int64_t>(positions.size());
  const std::vector<RopeCase> cases{
      {9, 64, 64, RopeStyle::kNeox},        {3, 80, 32, RopeStyle::kNeox},
      {1, 128, 128, RopeStyle::kNeox},      {2, 96, 96, RopeStyle::kNeox},
      {4, 64, 64, RopeStyle::kInterleaved}, {5, 64, 20, RopeStyle::kInterleaved},
      {2, 6, 6, RopeStyle::kNeox}};
  for (const RopeCase& c : cases) {
    const std::int64_t half = c.rotated / 2;
    std::vector<float> inv_freq;
    for (int row = 0; row < 2; ++row) {
      for (std::int64_t i = 0; i < half; ++i) {
        inv_freq.push_back(static_cast<float>(std::pow(
            row == 0 ? 1e4 : 5e5, -2.0 * static_cast<double>(i) / static_cast<double>(c.rotated))));
      }
    }
    const std::vector<float> scale{1.0f, 1.25f};
    const std::vector<float> x = random.normal(tokens * c.heads * c.head_dim);
    const TensorView view = device.put_strided(x, {tokens, c.heads, c.head_dim}, 9);
    device.ops().rope(device.context(), {.x = view,
                                         .positions = device.put(positions),
                                         .inv_freq = device.put(inv_freq, {2, half}),
                                         .scale = device.put(scale, {2}),
                                         .variant = device.put(variant),
                                         .rotated = c.rotated,
                                         .style = c.style});
    std::vector<double> expected(x.begin(), x.end());
    for (std::size_t t = 0; t < positions.size(); ++t) {
      const auto row = static_cast<std::size_t>(variant[t]);
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const std::size_t base =
            (t * static_cast<std::size_t>(c.heads) + static_cast<std::size_t>(h)) *
            static_cast<std::size_t>(c.head_dim);
        for (std::size_t i = 0; i < static_cast<std::size_t>(half); ++i) {
          // The angle as transformers forms it: a product in fp32.
          const float angle =
              static_cast<float>(positions[t]) * inv_freq[row * static_cast<std::size_t>(half) + i];
          const double cosine =
              std::cos(static_cast<double>(angle)) * static_cast<double>(scale[row]);
          const double sine =
              std::sin(static_cast<double>(angle)) * static_cast<double>(scale[row]);
          const bool neox = c.style == RopeStyle::kNeox;
          const std::size_t ia = base + (neox ? i : 2 * i);
          const std::size_t ib = base + (neox ? i + static_cast<std::size_t>(half) : 2 * i + 1);
          const double a = static_cast<double>(x[ia]);
          const double b = static_cast<double>(x[ib]);
          expected[ia] = a * cosine - b * sine;
          expected[ib] = b * cosine + a * sine;
        }
      }
    }
    EXPECT_LE(worst_difference(device.get(view), expected), 2e-6)
        << "head_dim " << c.head_dim << " rotated " << c.rotated;
  }
}

}  // namespace
}  // namespace bl::test
