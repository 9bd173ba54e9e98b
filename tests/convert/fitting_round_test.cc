// FittingOps::round: on the card as in host memory, for both formats.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../model/golden.h"
#include "backend/registry.h"
#include "convert/gptq_matrix.h"
#include "rounding_problem.h"

namespace bl::test {
namespace {

class FittingRound : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_backend().empty()) GTEST_SKIP() << "no CUDA device here";
    card_ = open_backend(cuda_backend(), {});
    on_card_ = std::make_unique<Products>(*card_);
  }

  // The problem in the memory of a backend, and what it is rounded to.
  struct Case {
    Case(Products& to, const Problem& p, const SlotOrder& order, std::int64_t padded)
        : products(to),
          hessian(order_hessian(to, to.from_host(p.sum.view()).view(), p.tokens, 0.01, order)),
          wanted(in_slot_order(to, p.weight.view(), hessian.perm, padded)),
          rounding(to, hessian, wanted.view()) {}
    double loss(const SlotCodes& codes, const std::vector<std::uint16_t>& rows) {
      return decoded_loss(codes, rows, products.to_host(hessian.h.view()).view(),
                          products.to_host(wanted.view()).view());
    }
    Products& products;
    OrderedHessian hessian;
    Tensor wanted;
    Rounding rounding;
  };

  static double share_of_equal(const std::vector<std::uint8_t>& a,
                               const std::vector<std::uint8_t>& b) {
    std::size_t equal = 0;
    for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i] ? 1 : 0;
    return static_cast<double>(equal) / static_cast<double>(a.size());
  }

  // Rounds in both memories. Float sums in another order turn single codes over, and what follows
  // from these; losses hardly differ.
  template <class Round>
  void compare(const Problem& p, const SlotOrder& order, int sweeps, const Round& round) {
    const std::int64_t padded = (p.out + 31) / 32 * 32;
    Case host(on_host_, p, order, padded), card(*on_card_, p, order, padded);
    const auto there = round(host), here = round(card), again = round(card);
    EXPECT_EQ(here.matrix.perm, there.matrix.perm);
    EXPECT_EQ(here.matrix.codes, again.matrix.codes);
    EXPECT_EQ(here.error, again.error);
    const double loss = card.loss(here.matrix, decoded_rows(here.matrix));
    EXPECT_NEAR(here.error / loss, 1.0, 2e-3);
    EXPECT_NEAR(here.error / there.error, 1.0, 0.005);
    EXPECT_GT(share_of_equal(here.matrix.codes, there.matrix.codes), 0.99) << sweeps << " sweeps";
    const double sum = std::accumulate(here.slot_errors.begin(), here.slot_errors.end(), 0.0);
    if (sweeps == 0) {
      EXPECT_DOUBLE_EQ(sum, here.error);
    } else {
      EXPECT_LT(here.error, sum);
    }
  }

  void compare_exl2(const Problem& p, const GroupList& groups, int sweeps) {
    compare(p, {}, sweeps, [&](Case& c) { return c.rounding.run(groups, sweeps); });
  }
  void compare_gptq(const Problem& p, const GptqLayout& layout, int sweeps) {
    compare(p, layout.slot_order(p.in), sweeps, [&](Case& c) {
      return round_gptq(c.products, c.hessian, c.wanted.view(), layout, sweeps);
    });
  }

  std::unique_ptr<Backend> cpu_ = open_backend("cpu", {.threads = 2});
  Products on_host_{*cpu_};
  std::unique_ptr<Backend> card_;
  std::unique_ptr<Products> on_card_;
};

// Groups of several widths and sizes; columns that are padded.
TEST_F(FittingRound, OfExl2IsThatOfTheHost) {
  const Problem p = make_problem(320, 72, 3);
  const GroupList groups{{8, 32}, {5, 64}, {4, 128}, {3, 64}, {2, 32}};
  for (const int sweeps : {0, 2}) compare_exl2(p, groups, sweeps);
}

TEST_F(FittingRound, OfExl2WithOneWidth) {
  const Problem p = make_problem(192, 224, 4);
  for (const int bits : {2, 4, 6}) compare_exl2(p, uniform_groups(bits, 64, 192), 1);
  Case card(*on_card_, p, {}, 224);
  const GroupList groups = uniform_groups(3, 64, 192);
  EXPECT_EQ(card.rounding.slot_errors(groups), card.rounding.run(groups, 0).slot_errors);
}

TEST_F(FittingRound, OfGptqIsThatOfTheHost) {
  const Problem p = make_problem(160, 96, 5);
  for (const bool symmetric : {true, false}) {
    for (const int bits : {2, 4}) {
      const GptqLayout layout{.bits = bits, .group_size = 32, .symmetric = symmetric};
      for (const int sweeps : {0, 2}) compare_gptq(p, layout, sweeps);
    }
  }
}

// One group of more slots than a launch rounds, a short last group, and scales without a search.
TEST_F(FittingRound, OfGptqWithGroupsOfEverySize) {
  const Problem p = make_problem(320, 64, 6);
  for (const std::int64_t size : {std::int64_t{-1}, std::int64_t{192}}) {
    compare_gptq(p, {.bits = 3, .group_size = size, .symmetric = false}, 2);
  }
  compare_gptq(p, {.bits = 4, .group_size = 64, .v2 = true, .min_max = true}, 1);
}

// Weights that are all zero stay so, in columns and in whole groups.
TEST_F(FittingRound, KeepsZeros) {
  Problem p = make_problem(96, 64, 7);
  for (std::int64_t c = 0; c < 64; ++c) {
    float* row = p.weight.view().row<float>(c);
    for (std::int64_t i = 0; i < 96; ++i) row[i] = c % 3 == 0 ? 0.0f : row[i];
  }
  Case card(*on_card_, p, {}, 64);
  const Rounding::Result result = card.rounding.run(uniform_groups(4, 32, 96), 2);
  const std::vector<std::uint16_t> rows = decoded_rows(result.matrix);
  for (std::size_t i = 0; i < 96; ++i) {
    EXPECT_EQ(rows[i] & 0x7fffu, 0u) << i;  // column 0
  }
  std::fill_n(p.weight.view().as<float>(), 64 * 96, 0.0f);
  Case zeros(*on_card_, p, {}, 64);
  EXPECT_EQ(zeros.rounding.run(uniform_groups(3, 32, 96), 1).error, 0.0);
}

}  // namespace
}  // namespace bl::test
