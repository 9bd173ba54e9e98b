#include "sample/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace bl {
namespace {

// Known answers published with the Random123 library (kat_vectors, philox4x32, 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformNumbersAreEvenAndDifferByPositionAndSeed) {
  double sum = 0;
  std::set<double> distinct;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double u = uniform_at(7, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    distinct.insert(u);
  }
  EXPECT_EQ(distinct.size(), kCount);
  EXPECT_NEAR(sum / kCount, 0.5, 0.01);
  EXPECT_NE(uniform_at(1, 5), uniform_at(2, 5));
  EXPECT_NE(uniform_at(1, 5), uniform_at(1, 5, DrawStream::kToken, 1));
}

}  // namespace
}  // namespace bl
