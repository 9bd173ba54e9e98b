// How a product's work is shared out: every chunk once, no CTA idle, strips' owners as they are.

#include <gtest/gtest.h>

#include <random>

#include "backend/cuda/product_plan.h"

namespace bl::test {
namespace {

using namespace cuda;

struct Place {
  std::int32_t strip;
  std::uint16_t chunk;
  std::uint32_t cost;
};

std::vector<Place> all_places(const std::vector<MatrixShape>& matrices) {
  std::vector<Place> places;
  std::int32_t strip = 0;
  for (const MatrixShape& m : matrices) {
    for (std::int32_t s = 0; s < m.strips; ++s, ++strip) {
      for (std::size_t c = 0; c < m.costs.size(); ++c) {
        places.push_back({strip, static_cast<std::uint16_t>(c), m.costs[c]});
      }
    }
  }
  return places;
}

bool before(const Place& a, const ChunkCursor& b) {
  return a.strip != b.strip ? a.strip < b.strip : a.chunk < b.chunk;
}

void check(const std::vector<MatrixShape>& matrices, int ctas) {
  const std::vector<CtaShare> shares = share_product(matrices, ctas);
  const std::vector<Place> places = all_places(matrices);
  ASSERT_GE(shares.size(), 1u);
  ASSERT_LE(shares.size(), static_cast<std::size_t>(ctas));
  std::uint64_t total = 0;
  std::uint32_t heaviest = 0;
  for (const Place& place : places) {
    total += place.cost;
    heaviest = std::max(heaviest, place.cost);
  }
  std::vector<int> owner_of_strip_first(static_cast<std::size_t>(places.back().strip) + 1, -1);
  std::vector<int> owner_of_strip_last(owner_of_strip_first.size(), -1);
  std::size_t next = 0;
  for (std::size_t c = 0; c < shares.size(); ++c) {
    const std::size_t first = next;
    std::uint64_t cost = 0;
    for (int w = 0; w < kProductWarps; ++w) {
      const ChunkCursor& begin = shares[c].begin[w];
      const ChunkCursor& end = shares[c].begin[w + 1];
      if (next < places.size() && before(places[next], end)) {
        EXPECT_EQ(begin.strip, places[next].strip);
        EXPECT_EQ(begin.chunk, places[next].chunk);
      }
      while (next < places.size() && before(places[next], end)) {
        auto& first_owner = owner_of_strip_first[static_cast<std::size_t>(places[next].strip)];
        if (first_owner < 0) first_owner = static_cast<int>(c);
        owner_of_strip_last[static_cast<std::size_t>(places[next].strip)] = static_cast<int>(c);
        cost += places[next++].cost;
      }
    }
    EXPECT_GT(next, first) << "share " << c << " is empty";
    EXPECT_LE(cost, total / shares.size() + 2 * heaviest);
  }
  EXPECT_EQ(next, places.size());
  for (const CtaShare& share : shares) {
    const ChunkCursor& end = share.begin[kProductWarps];
    const std::int32_t strips[2] = {share.begin[0].strip,
                                    end.chunk > 0 ? end.strip : end.strip - 1};
    for (int e = 0; e < 2; ++e) {
      EXPECT_EQ(share.first_owner[e], owner_of_strip_first[static_cast<std::size_t>(strips[e])]);
      EXPECT_EQ(share.last_owner[e], owner_of_strip_last[static_cast<std::size_t>(strips[e])]);
    }
  }
}

TEST(ProductShare, EveryChunkOnceAndNobodyIdle) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<MatrixShape> matrices(1 + random() % 4);
    for (MatrixShape& m : matrices) {
      m.strips = 1 + static_cast<std::int32_t>(random() % 40);
      m.costs.resize(1 + random() % 50);
      for (std::uint32_t& cost : m.costs) cost = static_cast<std::uint32_t>(4 + random() % 15);
    }
    check(matrices, 1 + static_cast<int>(random() % 200));
  }
}

TEST(ProductShare, ShapesOfRealModels) {
  const std::vector<std::uint32_t> narrow(32, 18);
  check({{64, narrow}, {16, narrow}, {16, narrow}}, 132);
  check({{224, narrow}, {224, narrow}}, 132);
  check({{64, std::vector<std::uint32_t>(112, 18)}}, 132);
  check({{2004, std::vector<std::uint32_t>(64, 14)}}, 132);
  check({{1, {4}}}, 132);
}

}  // namespace
}  // namespace bl::test
