// What conversion asks of a backend, against naive code: in host memory, and on the card where
// there is one. Sizes are odd, rows lie apart.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "../model/golden.h"
#include "backend/registry.h"
#include "convert/products.h"

namespace bl::test {
namespace {

using Values = std::vector<float>;

class FittingOpsOf : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam() == std::string("cuda") ? cuda_backend() : GetParam();
    if (name.empty()) GTEST_SKIP() << "no CUDA device here";
    backend_ = open_backend(name, {.threads = 2});
    products_ = std::make_unique<Products>(*backend_);
  }

  FittingOps& ops() { return products_->ops(); }

  Values normal(std::int64_t count) {
    std::normal_distribution<float> distribution;
    Values values(static_cast<std::size_t>(count));
    for (float& value : values) value = distribution(random_);
    return values;
  }
  // A matrix of the backend whose rows lie `padding` elements further apart than their length.
  TensorView put(Values values, std::int64_t rows, std::int64_t padding = 0) {
    const std::int64_t columns = std::ssize(values) / rows;
    const Tensor& wide = tensors_.emplace_back(products_->zeros(rows, columns + padding));
    const TensorView view = slice_columns(wide.view(), padding, columns);
    backend_->upload(view, view_of(values.data(), {rows, columns}));
    return view;
  }
  TensorView random(std::int64_t rows, std::int64_t columns, std::int64_t padding = 0) {
    return put(normal(rows * columns), rows, padding);
  }
  Values get(const TensorView& view) {
    const Tensor host = products_->to_host(view);
    const float* values = host.view().as<const float>();
    return {values, values + view.shape.elements()};
  }
  // The permutation 0, 5, 10, … modulo n, which 5 must not divide.
  static std::vector<std::int32_t> scattered(std::int64_t n) {
    std::vector<std::int32_t> perm;
    for (std::int64_t i = 0; i < n; ++i) perm.push_back(static_cast<std::int32_t>(i * 5 % n));
    return perm;
  }
  void expect_near(const TensorView& view,
                   const std::function<double(std::size_t, std::size_t)>& is, double tolerance) {
    const Values values = get(view);
    const auto columns = static_cast<std::size_t>(view.columns());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double wanted = is(i / columns, i % columns);
      ASSERT_NEAR(values[i], wanted, tolerance * std::max(1.0, std::abs(wanted)))
          << "row " << i / columns << " column " << i % columns;
    }
  }

  std::mt19937 random_{7};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Products> products_;
  std::vector<Tensor> tensors_;
};

TEST_P(FittingOpsOf, AddProductsOfEveryForm) {
  struct Form {
    bool a_transposed, b_transposed, upper;
    float multiplier;
  };
  for (const auto& [a_turned, b_turned, upper, multiplier] :
       {Form{false, true, false, -0.5f}, Form{false, false, false, 2.0f},
        Form{true, false, false, 1.0f}, Form{true, false, true, 1.0f}}) {
    const std::int64_t m = upper ? 67 : 35, n = 67, k = 41;
    const TensorView a = a_turned ? random(k, m, 4) : random(m, k, 4);
    const TensorView b = b_turned ? random(n, k) : random(k, n, 8);
    const TensorView out = random(m, n, 5);
    const Values left = get(a), right = get(b), before = get(out);
    ops().add_product({.out = out,
                       .a = a,
                       .b = b,
                       .a_transposed = a_turned,
                       .b_transposed = b_turned,
                       .upper = upper,
                       .multiplier = multiplier});
    const Values after = get(out);
    const auto at = [](const Values& values, std::int64_t columns, std::int64_t r, std::int64_t c) {
      return static_cast<double>(values[static_cast<std::size_t>(r * columns + c)]);
    };
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = upper ? i : 0; j < n; ++j) {
        double sum = 0.0;
        for (std::int64_t t = 0; t < k; ++t) {
          sum += (a_turned ? at(left, m, t, i) : at(left, k, i, t)) *
                 (b_turned ? at(right, k, j, t) : at(right, n, t, j));
        }
        ASSERT_NEAR(at(after, n, i, j), at(before, n, i, j) + multiplier * sum, 1e-4)
            << a_turned << b_turned << upper << " row " << i << " column " << j;
      }
    }
  }
}

// A triangle that is computed in more than one piece.
TEST_P(FittingOpsOf, AddALargeUpperTriangle) {
  const std::int64_t n = 1100;
  const TensorView x = random(3, n), out = put(Values(static_cast<std::size_t>(n * n), 1.0f), n);
  products_->add_upper_gram(out, x);
  const Values values = get(x), sums = get(out);
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); i += 7) {
    for (std::size_t j = i; j < static_cast<std::size_t>(n); j += 3) {
      double sum = 1.0;
      for (std::size_t t = 0; t < 3; ++t) sum += 1.0 * values[t * 1100 + i] * values[t * 1100 + j];
      ASSERT_NEAR(sums[i * 1100 + j], sum, 1e-4) << i << " " << j;
    }
  }
}

TEST_P(FittingOpsOf, MoveMatrices) {
  const TensorView from = random(33, 70, 3);
  const Values values = get(from);
  expect_near(
      products_->transposed(from).view(),
      [&](std::size_t r, std::size_t c) { return values[c * 70 + r]; }, 0.0);
  const TensorView to = random(33, 70, 9);
  ops().copy(to, from);
  EXPECT_EQ(get(to), values);
  ops().clear(slice_columns(to, 10, 20));
  expect_near(
      to,
      [&](std::size_t r, std::size_t c) { return c >= 10 && c < 30 ? 0.0 : values[r * 70 + c]; },
      0.0);
}

TEST_P(FittingOpsOf, ChangeRowsAndSums) {
  const TensorView x = random(37, 45, 2), y = random(37, 45);
  const Values a = get(x), b = get(y);
  ops().add_scaled(x, y, -0.25f);
  expect_near(
      x, [&](std::size_t r, std::size_t c) { return a[r * 45 + c] - 0.25 * b[r * 45 + c]; }, 1e-6);
  const Values factors = normal(37);
  ops().scale_rows(y, factors);
  expect_near(
      y, [&](std::size_t r, std::size_t c) { return 1.0 * factors[r] * b[r * 45 + c]; }, 1e-6);
}

TEST_P(FittingOpsOf, FindWantedOutputs) {
  const TensorView out = random(19, 40, 8), stream = random(19, 40, 1), bias = random(1, 40);
  const Values o = get(out), s = get(stream), added = get(bias);
  const Tensor y = products_->matrix({19, 40});
  ops().wanted_output({.y = y.view(), .out = out, .multiplier = 2.0f});
  expect_near(
      y.view(), [&](std::size_t r, std::size_t c) { return o[r * 40 + c] / 2.0; }, 1e-6);
  TensorView row = bias;
  row.shape = {40};
  ops().wanted_output(
      {.y = y.view(), .out = out, .stream = stream, .bias = row, .multiplier = 0.5f});
  expect_near(
      y.view(),
      [&](std::size_t r, std::size_t c) {
        return 2.0 * (1.0 * o[r * 40 + c] - s[r * 40 + c] - added[c]);
      },
      1e-5);
}

TEST_P(FittingOpsOf, FindCorrectionTargets) {
  const std::vector<std::int32_t> perm = scattered(33);
  const TensorView product = random(33, 64), cross = random(33, 50), weights = random(33, 64);
  const Values p = get(product), x = get(cross), w = get(weights);
  ops().correction_target({.product = product,
                           .cross = cross,
                           .weights = weights,
                           .perm = perm,
                           .tokens = 3.0f,
                           .damping = 0.7f});
  expect_near(
      product,
      [&](std::size_t k, std::size_t c) {
        if (c >= 50) return 1.0 * p[k * 64 + c];
        const auto channel = static_cast<std::size_t>(perm[k]);
        return x[channel * 50 + c] / 3.0 - p[k * 64 + c] + 0.7 * w[k * 64 + c];
      },
      1e-5);
}

TEST_P(FittingOpsOf, GatherByPermutations) {
  const std::vector<std::int32_t> perm = scattered(33);
  const TensorView upper = random(33, 33);
  const Values u = get(upper);
  const Tensor to = products_->matrix({33, 33});
  ops().gather_symmetric(to.view(), upper, perm);
  expect_near(
      to.view(),
      [&](std::size_t i, std::size_t j) {
        const auto [a, b] = std::minmax(perm[i], perm[j]);
        return u[static_cast<std::size_t>(a * 33 + b)];
      },
      0.0);
  const TensorView a = random(33, 64, 4), b = random(33, 50, 6);
  const Values left = get(a), right = get(b);
  for (const bool permuted : {false, true}) {
    double sum = 0.0;
    for (std::size_t r = 0; r < 33; ++r) {
      const std::size_t other = permuted ? static_cast<std::size_t>(perm[r]) : r;
      for (std::size_t c = 0; c < 50; ++c) sum += 1.0 * left[r * 64 + c] * right[other * 50 + c];
    }
    const double is = ops().dot(a, b, permuted ? perm : std::vector<std::int32_t>());
    EXPECT_NEAR(is, sum, 1e-9 * std::max(1.0, std::abs(sum))) << permuted;
  }
}

// Rows of several matrices, of which the backend may keep some in host memory.
TEST_P(FittingOpsOf, GatherRowsOfSeveralMatrices) {
  std::vector<Tensor> kept;
  for (int i = 0; i < 5; ++i) {
    if (i == 3) ops().set_row_room(SIZE_MAX);  // on the card from here on
    kept.push_back(products_->keep(random(7, 45, 3)));
  }
  std::vector<TensorView> rows;
  Values wanted;
  for (std::int64_t i = 0; i < 21; ++i) {
    const TensorView& matrix = kept[static_cast<std::size_t>(i * 3 % 5)].view();
    rows.push_back(slice_rows(matrix, i % 7, 1));
    const Tensor row = products_->zeros(1, 45);
    ops().copy(row.view(), rows.back());
    const Values values = get(row.view());
    wanted.insert(wanted.end(), values.begin(), values.end());
  }
  EXPECT_EQ(get(products_->gathered(rows).view()), wanted);
}

TEST_P(FittingOpsOf, LoadWeightsOfEveryType) {
  const std::vector<std::int32_t> perm = scattered(32);
  const Values values = normal(37 * 32);
  const auto check = [&]<class T>(DType dtype, Tag<T>) {
    std::vector<T> weights;
    for (const float value : values) weights.push_back(static_cast<T>(value));
    const TensorView weight = view_of(weights.data(), dtype, {37, 32});
    const Tensor out = products_->matrix({32, 64});
    ops().load_in_slot_order({.out = out.view(), .weight = weight, .perm = perm});
    expect_near(
        out.view(),
        [&](std::size_t k, std::size_t c) {
          if (c >= 37) return 0.0f;
          return static_cast<float>(weights[c * 32 + static_cast<std::size_t>(perm[k])]);
        },
        0.0);
    const Tensor loaded = ops().load_weights(weight);
    const TensorView x = random(5, 32);
    const Values rows = get(x);
    const Tensor y = products_->zeros(5, 37);
    products_->add(y.view(), x, loaded.view());
    expect_near(
        y.view(),
        [&](std::size_t r, std::size_t c) {
          double sum = 0.0;
          for (std::size_t i = 0; i < 32; ++i) {
            sum += rows[r * 32 + i] * static_cast<float>(weights[c * 32 + i]);
          }
          return sum;
        },
        1e-4);
  };
  check(DType::kF32, Tag<float>());
  check(DType::kF16, Tag<Half>());
  check(DType::kBF16, Tag<BFloat16>());
}

// H and Uᵀ by their definition, for sizes around those of diagonal blocks and tiles.
TEST_P(FittingOpsOf, FactorHessians) {
  for (const std::int64_t n : {1, 32, 48, 49, 161}) {
    const std::int64_t tokens = 3 * n;
    const TensorView x = random(tokens, n);
    const Tensor sum = products_->zeros(n, n);
    products_->add_upper_gram(sum.view(), x);
    const Values upper = get(sum.view());
    const std::vector<std::int32_t> perm = scattered(n);
    const auto factored = ops().factor(
        {.sum = sum.view(), .perm = perm, .tokens = static_cast<double>(tokens), .damping = 0.125});
    ASSERT_TRUE(factored.has_value()) << n;
    const auto size = static_cast<std::size_t>(n);
    const auto h_at = [&](std::size_t i, std::size_t j) {
      const auto [a, b] = std::minmax(perm[i], perm[j]);
      return upper[static_cast<std::size_t>(a * n + b)] / static_cast<double>(tokens) +
             (i == j ? 0.125 : 0.0);
    };
    expect_near(factored->h.view(), h_at, 1e-6);
    const Values u = get(factored->u_transposed.view()),
                 importance = get(factored->importance.view());
    // Uᵀ · U · H is the identity, and nothing of Uᵀ is above its diagonal.
    std::vector<double> uh(size * size, 0.0);
    for (std::size_t r = 0; r < size; ++r) {
      EXPECT_NEAR(importance[r] * u[r * size + r] * u[r * size + r], 1.0, 1e-5);
      for (std::size_t k = r + 1; k < size; ++k) ASSERT_EQ(u[r * size + k], 0.0f);
      for (std::size_t i = r; i < size; ++i) {
        for (std::size_t j = 0; j < size; ++j) uh[r * size + j] += u[i * size + r] * h_at(i, j);
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) {
        double product = 0.0;
        for (std::size_t r = 0; r <= i; ++r) product += u[i * size + r] * uh[r * size + j];
        ASSERT_NEAR(product, i == j ? 1.0 : 0.0, 2e-4) << n << ": " << i << " " << j;
      }
    }
  }
}

// Sizes whose halves take several stripes of a card. Uᵀ · U · H is the identity, by its product
// with a vector.
TEST_P(FittingOpsOf, FactorLargeHessians) {
  for (const std::int64_t n : {832, 1300}) {
    const auto size = static_cast<std::size_t>(n);
    const Tensor sum = products_->zeros(n, n);
    products_->add_upper_gram(sum.view(), random(n / 4, n));
    const std::vector<std::int32_t> perm = scattered(n);
    const FactorArgs args{
        .sum = sum.view(), .perm = perm, .tokens = static_cast<double>(n), .damping = 0.125};
    const auto factored = ops().factor(args);
    ASSERT_TRUE(factored.has_value()) << n;
    const Values h = get(factored->h.view()), u = get(factored->u_transposed.view());
    const Values probe = normal(n);
    std::vector<double> hv(size, 0.0), uhv(size, 0.0), result(size, 0.0);
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) hv[i] += 1.0 * h[i * size + j] * probe[j];
    }
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t r = 0; r <= i; ++r) uhv[r] += u[i * size + r] * hv[i];
      for (std::size_t r = i + 1; r < size; ++r) ASSERT_EQ(u[i * size + r], 0.0f);
    }
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t r = 0; r <= i; ++r) result[i] += u[i * size + r] * uhv[r];
      ASSERT_NEAR(result[i], probe[i], 1e-3) << n << ": " << i;
    }
    const auto again = ops().factor(args);
    EXPECT_EQ(get(again->u_transposed.view()), u) << n;
  }
}

TEST_P(FittingOpsOf, FindThatAHessianIsNotPositiveDefinite) {
  Values sum(64 * 64, 0.0f);
  for (std::size_t i = 0; i < 64; ++i) sum[i * 64 + i] = i == 50 ? -1.0f : 1.0f;
  std::vector<std::int32_t> perm(64);
  for (std::size_t i = 0; i < 64; ++i) perm[i] = static_cast<std::int32_t>(i);
  EXPECT_FALSE(ops().factor({.sum = put(sum, 64), .perm = perm, .damping = 0.5}).has_value());
  EXPECT_TRUE(ops().factor({.sum = put(sum, 64), .perm = perm, .damping = 1.5}).has_value());
}

TEST_P(FittingOpsOf, CompareRowsOfLogits) {
  const std::int64_t rows = 5, vocab = 1000;
  const TensorView first = random(rows, vocab), second = random(rows, vocab, 24);
  const Values a = get(first), b = get(second);
  const std::vector<std::int32_t> ids{0, 999, 500, 31, 7};
  const auto log_p = [&](const Values& logits, std::size_t r, std::size_t i) {
    double sum = 0.0;
    for (std::size_t j = 0; j < 1000; ++j) sum += std::exp(1.0 * logits[r * 1000 + j]);
    return logits[r * 1000 + i] - std::log(sum);
  };
  const Tensor p = products_->matrix({rows, vocab});
  std::vector<double> entropies(5), divergences(5), next(5);
  ops().softmax(p.view(), first, entropies);
  ops().divergences(p.view(), entropies, second, divergences);
  ops().log_probabilities(second, ids, next);
  const Values shares = get(p.view());
  for (std::size_t r = 0; r < 5; ++r) {
    double entropy = 0.0, divergence = 0.0;
    for (std::size_t i = 0; i < 1000; i += 1) {
      const double own = log_p(a, r, 0) - a[r * 1000] + a[r * 1000 + i];
      const double other = log_p(b, r, 0) - b[r * 1000] + b[r * 1000 + i];
      if (i % 100 == 0) {
        EXPECT_NEAR(shares[r * 1000 + i], std::exp(own), 1e-6);
      }
      entropy -= std::exp(own) * own;
      divergence += std::exp(own) * (own - other);
    }
    EXPECT_NEAR(entropies[r], entropy, 1e-5);
    EXPECT_NEAR(divergences[r], divergence, 1e-5);
    EXPECT_NEAR(next[r], log_p(b, r, static_cast<std::size_t>(ids[r])), 1e-5);
  }
}

// Rows that are kept on the card and in host memory are the same rows.
TEST_P(FittingOpsOf, KeepRows) {
  for (const std::size_t room : {std::size_t{0}, SIZE_MAX}) {
    ops().set_row_room(room);
    const TensorView x = random(9, 20, 4);
    const Values values = get(x);
    const Tensor kept = products_->keep(x);
    products_->update(kept, [&](const TensorView& rows) {
      EXPECT_EQ(get(rows), values);
      ops().add_scaled(rows, x, 1.0f);
    });
    const Tensor fetched = products_->fetch(kept);
    expect_near(
        fetched.view(), [&](std::size_t r, std::size_t c) { return 2.0 * values[r * 20 + c]; },
        0.0);
    const std::vector<TensorView> rows{slice_rows(kept.view(), 7, 1),
                                       slice_rows(kept.view(), 0, 1)};
    expect_near(
        products_->gathered(rows).view(),
        [&](std::size_t r, std::size_t c) { return 2.0 * values[(r == 0 ? 140 : 0) + c]; }, 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FittingOpsOf, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bl::test
