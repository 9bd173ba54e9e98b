// Which bytes of later weights a GEMV prefetches: inside n_tiles, in whole 16 bytes, nothing that
// the GEMM in front has prefetched, and no more than memory delivers.

#include "backend/cuda/prefetch/weight_prefetch.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/weights/cuda_matrix.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using namespace cuda;

// A matrix in memory that nobody reads.
struct PrefetchedMatrix {
  explicit PrefetchedMatrix(CodePackPlan of) : plan(std::move(of)) {
    const CodePackPlan::Layout layout = plan.layout();
    memory.resize(layout.total);
    static_cast<CodeViews&>(weights) = views_of(plan, layout, memory.data());
  }
  CodePackPlan plan;
  std::vector<std::byte> memory;
  CodeWeights weights;
};

PrefetchedMatrix exl2_of(const std::vector<GroupShape>& groups, std::int64_t out,
                         std::uint64_t seed) {
  Engine random(seed);
  return PrefetchedMatrix(plan_codes(random_exl2(groups, out, random), out));
}

std::int64_t prefetched_bytes(const WeightPrefetch& prefetch) {
  std::int64_t bytes = 0;
  for (int i = 0; i < prefetch.count; ++i) {
    bytes += std::int64_t{prefetch.sources[i].code_bytes} * prefetch.sources[i].n_tiles;
  }
  return bytes;
}

// Returns where a source's codes begin in an n_tile of the matrix.
std::int64_t first_of(const PrefetchedMatrix& m, const WeightPrefetch::Source& source) {
  return source.codes - m.weights.view.codes;
}

void expect_inside(const PrefetchedMatrix& m, const WeightPrefetch::Source& source) {
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

TEST(CudaWeightPrefetch, TheSecondContinuesWhereTheFirstEnds) {
  const PrefetchedMatrix gate = exl2_of({{4, 4096}}, 64, 51);
  const PrefetchedMatrix up = exl2_of({{5, 4096}}, 64, 52);
  const CodeWeights* const next[] = {&gate.weights, &up.weights};
  const WeightPrefetch first = plan_weight_prefetch(next, WeightPrefetchSite::kQueries);
  const WeightPrefetch second = plan_weight_prefetch(next, WeightPrefetchSite::kSecond);
  const WeightPrefetch other = plan_weight_prefetch(next, WeightPrefetchSite::kOther);
  ASSERT_EQ(first.count, 2);
  ASSERT_EQ(second.count, 2);
  ASSERT_EQ(other.count, 2);
  for (int i = 0; i < 2; ++i) {
    const PrefetchedMatrix& m = i == 0 ? gate : up;
    for (const WeightPrefetch* prefetch : {&first, &second, &other}) {
      expect_inside(m, prefetch->sources[i]);
      EXPECT_GT(prefetch->sources[i].code_bytes, 0u);
    }
    // What the reader's pipeline loads itself is left out.
    EXPECT_GT(first_of(m, first.sources[i]), 0);
    EXPECT_EQ(first_of(m, other.sources[i]), first_of(m, first.sources[i]));
    EXPECT_EQ(first_of(m, second.sources[i]),
              first_of(m, first.sources[i]) + first.sources[i].code_bytes);
  }
}

TEST(CudaWeightPrefetch, EveryKSplitIsPrefetched) {
  const PrefetchedMatrix down = exl2_of({{4, 14336}}, 64, 53);
  ASSERT_EQ(down.plan.k_splits.size(), 2u);
  const CodeWeights* const next[] = {&down.weights};
  const WeightPrefetch prefetch = plan_weight_prefetch(next, WeightPrefetchSite::kOther);
  ASSERT_EQ(prefetch.count, 2);
  const std::int64_t middle = down.plan.k_splits[1].first_byte;
  for (int i = 0; i < 2; ++i) expect_inside(down, prefetch.sources[i]);
  // The last k_split comes first.
  EXPECT_GT(first_of(down, prefetch.sources[0]), middle);
  EXPECT_LE(first_of(down, prefetch.sources[1]) + prefetch.sources[1].code_bytes, middle);
  EXPECT_EQ(first_of(down, prefetch.sources[0]) - middle, first_of(down, prefetch.sources[1]));
}

TEST(CudaWeightPrefetch, ShortNTilesAndPlainMatricesAreLeftOut) {
  const PrefetchedMatrix small = exl2_of({{4, 256}}, 64, 54);
  const PrefetchedMatrix narrow = exl2_of({{2, 2048 + 256}}, 64, 55);
  const CodeWeights* const next[] = {&small.weights, nullptr, &narrow.weights};
  const WeightPrefetch prefetch = plan_weight_prefetch(next, WeightPrefetchSite::kOther);
  ASSERT_EQ(prefetch.count, 1);
  expect_inside(narrow, prefetch.sources[0]);
  EXPECT_EQ(first_of(narrow, prefetch.sources[0]) + prefetch.sources[0].code_bytes,
            narrow.weights.view.n_tile_bytes);
  EXPECT_EQ(plan_weight_prefetch({}, WeightPrefetchSite::kOther).count, 0);
}

// A GEMM that also prefetches keys prefetches fewer weights, from the same place on.
TEST(CudaWeightPrefetch, LessBesideKeys) {
  const PrefetchedMatrix down = exl2_of({{4, 14336}}, 64, 53);
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

// As wide as the gate and up of a model of 70 billion parameters.
TEST(CudaWeightPrefetch, NoMoreThanMemoryDelivers) {
  PrefetchedMatrix wide = exl2_of({{4, 8192}}, 64, 56);
  wide.weights.view.n_tiles = 1792;
  const CodeWeights* const next[] = {&wide.weights, &wide.weights};
  EXPECT_LE(prefetched_bytes(plan_weight_prefetch(next, WeightPrefetchSite::kQueries)), 8 << 20);
  EXPECT_LE(prefetched_bytes(plan_weight_prefetch(next, WeightPrefetchSite::kBesideKeys)), 8 << 20);
  for (const WeightPrefetchSite site : {WeightPrefetchSite::kSecond, WeightPrefetchSite::kOther}) {
    const std::int64_t bytes = prefetched_bytes(plan_weight_prefetch(next, site));
    EXPECT_LE(bytes, 16 << 20);
    EXPECT_GT(bytes, 15 << 20);
  }
}

}  // namespace
}  // namespace bl::test
