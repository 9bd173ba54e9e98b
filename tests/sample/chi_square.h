#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace bl::test {

// The value that χ² of so many degrees of freedom exceeds with probability 10⁻⁶ (Wilson and
// Hilferty 1931: the cube root of χ²/n is nearly normal; 4.7534 is the normal quantile).
inline double chi_square_limit(double freedom) {
  constexpr double kQuantile = 4.7534;
  const double spread = 2 / (9 * freedom);
  return freedom * std::pow(1 - spread + kQuantile * std::sqrt(spread), 3);
}

// Counts of draws against probabilities; tokens expected fewer than ten times count as one.
inline void expect_frequencies(const std::vector<int>& counts, const std::vector<double>& p,
                               int draws) {
  double chi2 = 0;
  int cells = 0;
  double rest_expected = 0;
  int rest = 0;
  const auto add = [&](double expected, int count) {
    chi2 += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (std::size_t id = 0; id < counts.size(); ++id) {
    const double expected = p[id] * draws;
    if (p[id] == 0) {
      ASSERT_EQ(counts[id], 0) << "token " << id << " should have been cut";
    } else if (expected < 10) {
      rest_expected += expected;
      rest += counts[id];
    } else {
      add(expected, counts[id]);
    }
  }
  if (rest_expected >= 10) {
    add(rest_expected, rest);
  } else {
    EXPECT_LT(rest, 50);
  }
  if (cells > 1) {
    EXPECT_LT(chi2, chi_square_limit(cells - 1)) << cells << " cells";
  }
}

}  // namespace bl::test
