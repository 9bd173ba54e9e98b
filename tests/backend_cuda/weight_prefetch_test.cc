// What a product of one token asks for of the weights behind it: within strips, in whole 16 bytes,
// what the product before has not asked for, and no more than memory brings.

#include "backend/cuda/prefetch/weight_prefetch.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/weights/cuda_matrix.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using namespace cuda;

// A matrix in memory that nobody reads.
struct AheadMatrix {
  explicit AheadMatrix(CodePackPlan of) : plan(std::move(of)) {
    const CodePackPlan::Layout layout = plan.layout();
    memory.resize(layout.total);
    static_cast<CodeViews&>(weights) = views_of(plan, layout, memory.data());
  }
  CodePackPlan plan;
  std::vector<std::byte> memory;
  CodeWeights weights;
};

AheadMatrix exl2_of(const std::vector<GroupShape>& groups, std::int64_t out, std::uint64_t seed) {
  Engine random(seed);
  return AheadMatrix(plan_codes(random_exl2(groups, out, random), out));
}

std::int64_t ahead_bytes(const WeightPrefetch& ahead) {
  std::int64_t bytes = 0;
  for (int i = 0; i < ahead.count; ++i) {
    bytes += std::int64_t{ahead.sources[i].code_bytes} * ahead.sources[i].n_tiles;
  }
  return bytes;
}

// Where a source's codes lie in a strip of the matrix.
std::int64_t first_of(const AheadMatrix& m, const WeightPrefetch::Source& source) {
  return source.codes - m.weights.view.codes;
}

void expect_inside(const AheadMatrix& m, const WeightPrefetch::Source& source) {
  EXPECT_EQ(source.n_tiles, m.weights.view.n_tiles);
  EXPECT_EQ(source.n_tile_bytes, m.weights.view.n_tile_bytes);
  EXPECT_EQ(source.scales, m.weights.view.scales);
  EXPECT_EQ(std::size_t{source.scale_bytes} * static_cast<std::size_t>(source.n_tiles),
            m.plan.scale_bytes_total());
  EXPECT_GE(first_of(m, source), 0);
  EXPECT_LE(first_of(m, source) + source.code_bytes, m.weights.view.n_tile_bytes);
  EXPECT_EQ(first_of(m, source) % 16, 0);
  EXPECT_EQ(source.code_bytes % 16, 0u);
  EXPECT_EQ(source.scale_bytes % 16, 0u);
}

TEST(CudaWeightsAhead, TheSecondGoesOnWhereTheFirstEnds) {
  const AheadMatrix gate = exl2_of({{4, 4096}}, 64, 51);
  const AheadMatrix up = exl2_of({{5, 4096}}, 64, 52);
  const CodeWeights* const next[] = {&gate.weights, &up.weights};
  const WeightPrefetch first = plan_weight_prefetch(next, WeightPrefetchSite::kQueries);
  const WeightPrefetch second = plan_weight_prefetch(next, WeightPrefetchSite::kSecond);
  const WeightPrefetch other = plan_weight_prefetch(next, WeightPrefetchSite::kOther);
  ASSERT_EQ(first.count, 2);
  ASSERT_EQ(second.count, 2);
  ASSERT_EQ(other.count, 2);
  for (int i = 0; i < 2; ++i) {
    const AheadMatrix& m = i == 0 ? gate : up;
    for (const WeightPrefetch* ahead : {&first, &second, &other}) {
      expect_inside(m, ahead->sources[i]);
      EXPECT_GT(ahead->sources[i].code_bytes, 0u);
    }
    // What the ring asks for by itself is left out.
    EXPECT_GT(first_of(m, first.sources[i]), 0);
    EXPECT_EQ(first_of(m, other.sources[i]), first_of(m, first.sources[i]));
    EXPECT_EQ(first_of(m, second.sources[i]),
              first_of(m, first.sources[i]) + first.sources[i].code_bytes);
  }
}

TEST(CudaWeightsAhead, PartsOfALongRowAreAskedForEach) {
  const AheadMatrix down = exl2_of({{4, 14336}}, 64, 53);
  ASSERT_EQ(down.plan.k_splits.size(), 2u);
  const CodeWeights* const next[] = {&down.weights};
  const WeightPrefetch ahead = plan_weight_prefetch(next, WeightPrefetchSite::kOther);
  ASSERT_EQ(ahead.count, 2);
  const std::int64_t middle = down.plan.k_splits[1].first_byte;
  for (int i = 0; i < 2; ++i) expect_inside(down, ahead.sources[i]);
  // The last one first.
  EXPECT_GT(first_of(down, ahead.sources[0]), middle);
  EXPECT_LE(first_of(down, ahead.sources[1]) + ahead.sources[1].code_bytes, middle);
  EXPECT_EQ(first_of(down, ahead.sources[0]) - middle, first_of(down, ahead.sources[1]));
}

TEST(CudaWeightsAhead, ShortStripsAndPlainMatricesAreLeftOut) {
  const AheadMatrix small = exl2_of({{4, 256}}, 64, 54);
  const AheadMatrix narrow = exl2_of({{2, 2048 + 256}}, 64, 55);
  const CodeWeights* const next[] = {&small.weights, nullptr, &narrow.weights};
  const WeightPrefetch ahead = plan_weight_prefetch(next, WeightPrefetchSite::kOther);
  ASSERT_EQ(ahead.count, 1);
  expect_inside(narrow, ahead.sources[0]);
  EXPECT_EQ(first_of(narrow, ahead.sources[0]) + ahead.sources[0].code_bytes,
            narrow.weights.view.n_tile_bytes);
  EXPECT_EQ(plan_weight_prefetch({}, WeightPrefetchSite::kOther).count, 0);
}

// Who asks for keys, too, asks for less, from the same place on.
TEST(CudaWeightsAhead, LessBesideKeys) {
  const AheadMatrix down = exl2_of({{4, 14336}}, 64, 53);
  const CodeWeights* const next[] = {&down.weights};
  const WeightPrefetch beside = plan_weight_prefetch(next, WeightPrefetchSite::kBesideKeys);
  const WeightPrefetch other = plan_weight_prefetch(next, WeightPrefetchSite::kOther);
  ASSERT_EQ(beside.count, other.count);
  for (int i = 0; i < beside.count; ++i) {
    expect_inside(down, beside.sources[i]);
    EXPECT_EQ(first_of(down, beside.sources[i]), first_of(down, other.sources[i]));
    EXPECT_GT(beside.sources[i].code_bytes, 0u);
    EXPECT_LT(beside.sources[i].code_bytes, other.sources[i].code_bytes);
  }
}

// As wide as the gate and up of a model of 70 billion.
TEST(CudaWeightsAhead, NoMoreThanMemoryBrings) {
  AheadMatrix wide = exl2_of({{4, 8192}}, 64, 56);
  wide.weights.view.n_tiles = 1792;
  const CodeWeights* const next[] = {&wide.weights, &wide.weights};
  EXPECT_LE(ahead_bytes(plan_weight_prefetch(next, WeightPrefetchSite::kQueries)), 8 << 20);
  EXPECT_LE(ahead_bytes(plan_weight_prefetch(next, WeightPrefetchSite::kBesideKeys)), 8 << 20);
  for (const WeightPrefetchSite site : {WeightPrefetchSite::kSecond, WeightPrefetchSite::kOther}) {
    const std::int64_t bytes = ahead_bytes(plan_weight_prefetch(next, site));
    EXPECT_LE(bytes, 16 << 20);
    EXPECT_GT(bytes, 15 << 20);
  }
}

}  // namespace
}  // namespace bl::test
