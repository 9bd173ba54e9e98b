// Sums over tokens against naive ones.

#include "convert/products.h"

#include <gtest/gtest.h>

#include <random>

#include "backend/registry.h"

namespace bl::test {
namespace {

class OuterSums : public testing::Test {
 protected:
  Tensor matrix(std::int64_t rows, std::int64_t columns) {
    std::normal_distribution<float> normal;
    Tensor result = zero_matrix(rows, columns);
    float* values = result.view().as<float>();
    for (std::int64_t i = 0; i < rows * columns; ++i) values[i] = normal(random_);
    return result;
  }
  static double naive(const TensorView& a, std::int64_t i, const TensorView& b, std::int64_t j) {
    double sum = 0.0;
    for (std::int64_t t = 0; t < a.rows(); ++t) {
      sum += static_cast<double>(a.row<const float>(t)[i]) * b.row<const float>(t)[j];
    }
    return sum;
  }

  std::mt19937 random_{11};
  std::unique_ptr<Backend> backend_ = open_backend("cpu", {.threads = 3});
  Products products_{*backend_};
};

// Odd sizes, strided rows, more tokens than a panel holds; what was there before stays.
TEST_F(OuterSums, AreThoseOfNaiveCode) {
  const Tensor a = matrix(600, 61), b = matrix(600, 150);
  const TensorView left = slice_columns(a.view(), 3, 53), right = slice_columns(b.view(), 9, 131);
  const Tensor wide = matrix(53, 140);
  const TensorView out = slice_columns(wide.view(), 4, 131);
  const Tensor before = copy_of(wide.view());
  products_.add_outer(out, left, right);
  for (std::int64_t i = 0; i < 53; ++i) {
    for (std::int64_t j = 0; j < 140; ++j) {
      const double was = before.view().row<float>(i)[j];
      const bool inside = j >= 4 && j < 135;
      const double is = inside ? was + naive(left, i, right, j - 4) : was;
      ASSERT_NEAR(wide.view().row<float>(i)[j], is, inside ? 1e-3 : 0.0) << i << " " << j;
    }
  }
}

TEST_F(OuterSums, OfOneInputHaveAnUpperTriangle) {
  for (const std::int64_t n : {1, 47, 48, 130}) {
    const Tensor x = matrix(70, n), sum = zero_matrix(n, n);
    products_.add_upper_gram(sum.view(), x.view());
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = i; j < n; ++j) {
        ASSERT_NEAR(sum.view().row<float>(i)[j], naive(x.view(), i, x.view(), j), 1e-3)
            << n << " " << i << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace bl::test
