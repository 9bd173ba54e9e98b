// What rows that are held out say of a change of weights.

#include "convert/correction_guard.h"

#include <gtest/gtest.h>

#include <random>

#include "backend/registry.h"

namespace bl::test {
namespace {

constexpr std::int64_t kIn = 32, kOut = 32, kTokens = 400;  // of every problem

class CorrectionGuardTest : public testing::Test {
 protected:
  Tensor matrix(std::int64_t rows, std::int64_t columns, float size) {
    std::normal_distribution<float> normal(0.0f, size);
    Tensor result = zero_matrix(rows, columns);
    float* values = result.view().as<float>();
    for (std::int64_t i = 0; i < rows * columns; ++i) values[i] = normal(random_);
    return result;
  }

  // The share of `change` that is kept where the wanted outputs are x · (weights + part · change).
  double kept(float part, double strength = 1.0) {
    const Tensor x = matrix(kTokens, kIn, 1.0f), weights = matrix(kIn, kOut, 1.0f);
    const Tensor change = matrix(kIn, kOut, 0.1f);
    // Slots in reverse order of channels.
    std::vector<std::int32_t> perm;
    for (std::int32_t k = kIn - 1; k >= 0; --k) perm.push_back(k);
    Tensor target = zero_matrix(kOut, kIn);
    for (std::int64_t k = 0; k < kIn; ++k) {
      for (std::int64_t c = 0; c < kOut; ++c) {
        target.view().row<float>(c)[perm[static_cast<std::size_t>(k)]] =
            weights.view().row<float>(k)[c] + part * change.view().row<float>(k)[c];
      }
    }
    Tensor y = zero_matrix(kTokens, kOut), hessian = zero_matrix(kIn, kIn);
    Tensor cross = zero_matrix(kIn, kOut);
    products_.add(y.view(), x.view(), target.view());
    products_.add_upper_gram(hessian.view(), x.view());
    products_.add_outer(cross.view(), x.view(), y.view());
    const CorrectionGuard guard{products_, perm, hessian.view(), cross.view()};
    return guard.kept_share(weights.view(), change.view(), strength);
  }

  std::mt19937 random_{3};
  std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 1});
  Products products_{*backend_};
};

TEST_F(CorrectionGuardTest, KeepsWhatTheRowsConfirm) {
  EXPECT_EQ(kept(1.0f), 1.0);
  EXPECT_EQ(kept(3.0f), 1.0);
  EXPECT_EQ(kept(0.7f), 0.75);
  EXPECT_EQ(kept(0.45f), 0.5);
  EXPECT_EQ(kept(0.0f), 0.0);
  EXPECT_EQ(kept(-1.0f), 0.0);
}

// The share is of what would be added, not of the whole change.
TEST_F(CorrectionGuardTest, CountsTheStrength) {
  EXPECT_EQ(kept(0.5f, 0.5), 1.0);
  EXPECT_EQ(kept(0.25f, 0.5), 0.5);
}

}  // namespace
}  // namespace bl::test
