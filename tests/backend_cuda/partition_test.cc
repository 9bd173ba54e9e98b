// How the n_tiles of a launch are divided among CTAs: each once, no CTA idle, nearly equal costs.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "backend/cuda/gemm/partition/partition.h"

namespace bl::test {
namespace {

using namespace cuda;

void check(const std::vector<NTileCosts>& matrices, int ctas) {
  std::vector<std::uint64_t> costs;
  for (const NTileCosts& m : matrices) {
    costs.insert(costs.end(), static_cast<std::size_t>(m.n_tiles), m.cost);
  }
  std::uint64_t total = 0;
  for (const std::uint64_t cost : costs) total += cost;
  const std::uint64_t heaviest = *std::max_element(costs.begin(), costs.end());
  const std::vector<std::int32_t> begins = partition_n_tiles(matrices, ctas);
  ASSERT_EQ(begins.size() - 1, std::min(costs.size(), static_cast<std::size_t>(ctas)));
  EXPECT_EQ(begins.front(), 0);
  EXPECT_EQ(begins.back(), static_cast<std::int32_t>(costs.size()));
  const std::uint64_t cta_ranges = begins.size() - 1;
  for (std::size_t c = 0; c < cta_ranges; ++c) {
    ASSERT_LT(begins[c], begins[c + 1]);
    std::uint64_t cost = 0;
    for (std::int32_t s = begins[c]; s < begins[c + 1]; ++s) {
      cost += costs[static_cast<std::size_t>(s)];
    }
    // The rounding at both ends of a range is at most one n_tile.
    EXPECT_LE(cost, total / cta_ranges + 2 * heaviest) << "range " << c;
  }
}

// No range has n_tiles of both k_splits.
TEST(Partition, KSplitsHaveRangesOfTheirOwn) {
  for (const int n_tiles : {1, 2, 7, 128, 256, 512}) {
    for (const int ctas : {2, 3, 132, 144}) {
      const std::vector<std::int32_t> begins = partition_k_splits(n_tiles, ctas);
      ASSERT_LE(begins.size() - 1, static_cast<std::size_t>(ctas));
      EXPECT_EQ(begins.front(), 0);
      EXPECT_EQ(begins.back(), 2 * n_tiles);
      EXPECT_NE(std::find(begins.begin(), begins.end(), n_tiles), begins.end());
      EXPECT_TRUE(std::is_sorted(begins.begin(), begins.end(), std::less_equal<>()));
    }
  }
  EXPECT_EQ(partition_k_splits(256, 132).size(), 129u)
      << "four n_tiles each, none for the last four";
}

TEST(Partition, EqualRangesDifferByOneNTile) {
  for (const int n_tiles : {1, 7, 131, 132, 133, 256, 384, 1792, 8016}) {
    const std::vector<std::int32_t> begins =
        partition_n_tiles(std::vector<NTileCosts>{{n_tiles, 5}}, 132);
    std::int32_t least = n_tiles;
    std::int32_t most = 0;
    for (std::size_t c = 0; c + 1 < begins.size(); ++c) {
      least = std::min(least, begins[c + 1] - begins[c]);
      most = std::max(most, begins[c + 1] - begins[c]);
    }
    EXPECT_LE(most - least, 1) << n_tiles;
  }
}

TEST(Partition, FewNTilesGiveFewRanges) {
  check({{3, 100}}, 132);
  check({{1, 1}}, 132);
  check({{2, 7}, {1, 9}}, 132);
}

TEST(Partition, SeveralMatricesOfDifferentCosts) {
  check({{256, 32768}, {64, 32768}, {64, 40960}}, 132);
  check({{896, 40000}, {896, 50000}}, 132);
  check({{10, 1}, {10, 1000000}}, 16);
  check({{10, 1000000}, {10, 1}}, 16);
}

// Returns how many ranges have n_tiles of two matrices.
int cta_ranges_of_two(const std::vector<NTileCosts>& matrices,
                      const std::vector<std::int32_t>& begins) {
  int count = 0;
  std::int32_t before = 0;
  for (std::size_t m = 0; m + 1 < matrices.size(); ++m) {
    before += matrices[m].n_tiles;
    count += std::find(begins.begin(), begins.end(), before) == begins.end() ? 1 : 0;
  }
  return count;
}

std::int32_t most_n_tiles(const std::vector<std::int32_t>& begins) {
  std::int32_t most = 0;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
    most = std::max(most, begins[i + 1] - begins[i]);
  }
  return most;
}

TEST(Partition, ByMatrixWhereThatEndsSooner) {
  // q, k and v of an 8b model: three n_tiles each except two ranges of two matrices, which take
  // longer than four n_tiles of one matrix. Some multiprocessors stay free.
  const std::vector<NTileCosts> grouped{{256, 9}, {64, 9}, {64, 9}};
  EXPECT_EQ(cta_ranges_of_two(grouped, partition_n_tiles(grouped, 128)), 2);
  const std::vector<std::int32_t> apart = partition_by_matrix(grouped, 132);
  EXPECT_EQ(apart.size() - 1, 128u);
  EXPECT_EQ(apart.back(), 384);
  EXPECT_EQ(cta_ranges_of_two(grouped, apart), 0);
  EXPECT_EQ(most_n_tiles(apart), 4);
  // q, k and v of a 7b model: six n_tiles each, which are two groups in any case.
  const std::vector<NTileCosts> equal{{256, 9}, {256, 9}, {256, 9}};
  EXPECT_EQ(partition_by_matrix(equal, 132), partition_n_tiles(equal, 128));
  // One matrix; and fewer CTAs than matrices.
  const std::vector<NTileCosts> one{{100, 5}};
  EXPECT_EQ(partition_by_matrix(one, 132), partition_n_tiles(one, fewest_cta_ranges(one, 132)));
  const std::vector<NTileCosts> few{{3, 5}, {3, 5}, {1, 5}};
  EXPECT_EQ(partition_by_matrix(few, 2).back(), 7);
}

TEST(Partition, ByMatrixHasEveryNTileOnce) {
  std::mt19937 random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int apart = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<NTileCosts> matrices(static_cast<std::size_t>(1 + below(4)));
    std::int32_t n_tiles = 0;
    for (NTileCosts& m : matrices) {
      m = {1 + below(300), static_cast<std::uint64_t>(1 + below(4) + (i % 2) * 900)};
      n_tiles += m.n_tiles;
    }
    const int ctas = 1 + below(150);
    const std::vector<std::int32_t> begins = partition_by_matrix(matrices, ctas);
    ASSERT_EQ(begins.front(), 0);
    ASSERT_EQ(begins.back(), n_tiles);
    ASSERT_LE(begins.size() - 1, static_cast<std::size_t>(ctas));
    for (std::size_t c = 0; c + 1 < begins.size(); ++c) ASSERT_LT(begins[c], begins[c + 1]);
    apart += matrices.size() > 1 && cta_ranges_of_two(matrices, begins) == 0 ? 1 : 0;
  }
  EXPECT_GT(apart, 100);
}

TEST(Partition, ByInputWhereThatTakesNoLonger) {
  // q, k and v of 8b and 7b models: as many n_tiles as in mixed ranges, but of one matrix each.
  const std::vector<NTileCosts> grouped{{256, 9}, {64, 9}, {64, 9}};
  const std::vector<NTileCosts> equal{{256, 9}, {256, 9}, {256, 9}};
  for (const auto& [matrices, most] : {std::pair(grouped, 3), std::pair(equal, 6)}) {
    const std::vector<std::int32_t> mixed = partition_n_tiles(matrices, 131);
    EXPECT_GT(cta_ranges_of_two(matrices, mixed), 0);
    const std::vector<std::int32_t> apart = partition_by_input(matrices, mixed, {.ctas = 131});
    EXPECT_EQ(cta_ranges_of_two(matrices, apart), 0);
    EXPECT_EQ(most_n_tiles(apart), most);
  }
  // Two n_tiles each in mixed ranges, or three in ranges of one matrix, depending on whether an
  // input layout costs less than an n_tile.
  const std::vector<NTileCosts> uneven{{5, 9}, {5, 9}, {4, 9}};
  const std::vector<std::int32_t> mixed = partition_n_tiles(uneven, 7);
  EXPECT_EQ(partition_by_input(uneven, mixed, {.ctas = 7, .cost = 8}), mixed);
  EXPECT_EQ(cta_ranges_of_two(uneven, partition_by_input(uneven, mixed, {.ctas = 7, .cost = 9})),
            0);
  // The last three CTAs begin late, and one of them has three n_tiles.
  InputLayoutRequest late{.ctas = 7, .late = {.count = 3, .cost = 9}, .cost = 8};
  EXPECT_EQ(partition_by_input(uneven, mixed, late), mixed);
  late.cost = 9;
  EXPECT_EQ(cta_ranges_of_two(uneven, partition_by_input(uneven, mixed, late)), 0);
  // Fewer CTAs than matrices.
  EXPECT_EQ(partition_by_input(grouped, partition_n_tiles(grouped, 2), {.ctas = 2}),
            partition_n_tiles(grouped, 2));
}

TEST(Partition, ByInputHasEveryNTileOnce) {
  std::mt19937 random(12);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 1000; ++i) {
    std::vector<NTileCosts> matrices(static_cast<std::size_t>(1 + below(4)));
    std::int32_t n_tiles = 0;
    for (NTileCosts& m : matrices) {
      m = {1 + below(300), static_cast<std::uint64_t>(1 + below(9))};
      n_tiles += m.n_tiles;
    }
    const int ctas = 1 + below(150);
    const InputLayoutRequest request{
        ctas, i % 2 == 0, {i % 3 == 0 ? below(60) : 0, 9}, i % 5 == 0 ? 9u : 0u};
    const std::vector<std::int32_t> begins =
        partition_by_input(matrices, partition_n_tiles(matrices, ctas), request);
    ASSERT_EQ(begins.front(), 0);
    ASSERT_EQ(begins.back(), n_tiles);
    ASSERT_LE(begins.size() - 1, static_cast<std::size_t>(ctas));
    for (std::size_t c = 0; c + 1 < begins.size(); ++c) ASSERT_LT(begins[c], begins[c + 1]);
  }
}

TEST(Partition, Random) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<NTileCosts> matrices(1 + random() % 4);
    for (NTileCosts& m : matrices) {
      m.n_tiles = static_cast<std::int32_t>(1 + random() % 400);
      m.cost = 1 + random() % (1u << (random() % 20));
    }
    check(matrices, static_cast<int>(1 + random() % 264));
  }
}

std::vector<std::int32_t> sizes_of(const std::vector<std::int32_t>& begins) {
  std::vector<std::int32_t> sizes;
  for (std::size_t c = 0; c + 1 < begins.size(); ++c) sizes.push_back(begins[c + 1] - begins[c]);
  return sizes;
}

TEST(Partition, LateCtasGetFewerWhereThatHelps) {
  const auto sizes = [](std::int32_t n_tiles, int late) {
    const NTileCosts costs[] = {{n_tiles, 10}};
    return sizes_of(partition_n_tiles(costs, 132, {late, 10}));
  };
  // 5 or 6 n_tiles each: the last 48 have 5.
  const std::vector<std::int32_t> some = sizes(688, 48);
  EXPECT_EQ(*std::max_element(some.begin(), some.end() - 48), 6);
  EXPECT_EQ(*std::max_element(some.end() - 48, some.end()), 5);
  // 6 or 7: 28 ranges have 6, which is enough for 12 late ones, but not for 48.
  const std::vector<std::int32_t> few = sizes(896, 12);
  EXPECT_EQ(*std::max_element(few.begin(), few.end() - 12), 7);
  EXPECT_EQ(*std::max_element(few.end() - 12, few.end()), 6);
  EXPECT_EQ(sizes(896, 48), sizes(896, 0));
  // No range is empty, and none is superfluous.
  EXPECT_EQ(sizes(132, 48), std::vector<std::int32_t>(132, 1));
  EXPECT_EQ(sizes(5, 48), std::vector<std::int32_t>(5, 1));
  EXPECT_EQ(sizes(896, 132), sizes(896, 0));
}

// Returns when the last range ends, if the last `late` CTAs begin later.
std::uint64_t end_of(const std::vector<NTileCosts>& matrices,
                     const std::vector<std::int32_t>& begins, const LateCtas& late) {
  std::vector<std::uint64_t> costs;
  for (const NTileCosts& m : matrices) {
    costs.insert(costs.end(), static_cast<std::size_t>(m.n_tiles), m.cost);
  }
  std::uint64_t end = 0;
  const int cta_ranges = static_cast<int>(begins.size()) - 1;
  for (int c = 0; c < cta_ranges; ++c) {
    const auto first = costs.begin() + begins[static_cast<std::size_t>(c)];
    const auto last = costs.begin() + begins[static_cast<std::size_t>(c) + 1];
    const std::uint64_t begin = c >= cta_ranges - late.count ? late.cost : 0;
    end = std::max(end, std::accumulate(first, last, begin));
  }
  return end;
}

TEST(Partition, LateCtasMakeNothingLater) {
  std::mt19937 random(5);
  int better = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<NTileCosts> matrices(1 + random() % 3);
    for (NTileCosts& m : matrices) {
      m.n_tiles = static_cast<std::int32_t>(1 + random() % 400);
      m.cost = 1 + random() % 100;
    }
    const LateCtas late{static_cast<int>(random() % 60), random() % 200};
    const std::vector<std::int32_t> plain = partition_n_tiles(matrices, 132);
    const std::vector<std::int32_t> begins = partition_n_tiles(matrices, 132, late);
    ASSERT_EQ(begins.size(), plain.size());
    EXPECT_EQ(begins.front(), 0);
    EXPECT_EQ(begins.back(), plain.back());
    EXPECT_TRUE(std::is_sorted(begins.begin(), begins.end(), std::less_equal<>()));
    EXPECT_LE(end_of(matrices, begins, late), end_of(matrices, plain, late));
    better += end_of(matrices, begins, late) < end_of(matrices, plain, late) ? 1 : 0;
  }
  EXPECT_GT(better, 50);
}

// Returns the cost of the longest of `ctas` ranges.
std::uint64_t longest_cta_range(const std::vector<NTileCosts>& matrices, int ctas) {
  std::vector<std::uint64_t> costs;
  for (const NTileCosts& m : matrices) {
    costs.insert(costs.end(), static_cast<std::size_t>(m.n_tiles), m.cost);
  }
  const std::vector<std::int32_t> begins = partition_n_tiles(matrices, ctas);
  std::uint64_t longest = 0;
  for (std::size_t c = 0; c + 1 < begins.size(); ++c) {
    const auto first = costs.begin() + begins[c];
    longest =
        std::max(longest, std::accumulate(first, costs.begin() + begins[c + 1], std::uint64_t{0}));
  }
  return longest;
}

TEST(Partition, FewestRangesTakeNoLonger) {
  for (const std::vector<NTileCosts>& matrices : {std::vector<NTileCosts>{{256, 5}},
                                                  {{384, 5}},
                                                  {{160, 7}},
                                                  {{1792, 9}},
                                                  {{132, 1}},
                                                  {{5, 1}},
                                                  {{256, 32768}, {64, 32768}, {64, 40960}},
                                                  {{256, 9}, {64, 40960}}}) {
    const int fewest = fewest_cta_ranges(matrices, 132);
    EXPECT_LE(fewest, 132);
    EXPECT_LE(longest_cta_range(matrices, fewest), longest_cta_range(matrices, 132));
  }
  // Whole n_tiles: 2, 3 and 14 a range.
  EXPECT_EQ(fewest_cta_ranges(std::vector<NTileCosts>{{256, 5}}, 132), 128);
  EXPECT_EQ(fewest_cta_ranges(std::vector<NTileCosts>{{384, 5}}, 132), 128);
  EXPECT_EQ(fewest_cta_ranges(std::vector<NTileCosts>{{1792, 5}}, 132), 128);
  EXPECT_EQ(fewest_cta_ranges(std::vector<NTileCosts>{{264, 5}}, 132), 132);
}

}  // namespace
}  // namespace bl::test
