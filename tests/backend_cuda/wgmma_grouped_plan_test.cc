// How grouped wgmma GEMMs choose their row tiles and lay out shared memory.

#include "backend/cuda/gemm/wgmma/wgmma_grouped_plan.h"

#include <gtest/gtest.h>

namespace bl::test {
namespace {

using namespace cuda;

DeviceFacts h200() {
  DeviceFacts facts;
  facts.compute_capability = 90;
  facts.multiprocessors = 132;
  facts.shared_bytes_per_cta = 227 << 10;
  return facts;
}

WgmmaGroupedArgs args_of(int count, int out) {
  WgmmaGroupedArgs args;
  args.count = count;
  args.widest = 4;
  args.k_steps = 64;
  args.out = out;
  return args;
}

TEST(WgmmaGroupedPlan, TilesFitTheRowsOfAGroup) {
  EXPECT_EQ(choose_tile_rows(128 * 4, 128), 64);
  // Groups of about 128 rows: most of them have fewer than 160, but half have more than 128.
  EXPECT_EQ(choose_tile_rows(128 * 128, 128), 160);
  // Whole large tiles, which cost least a row.
  EXPECT_EQ(choose_tile_rows(100000, 1), 256);
}

TEST(WgmmaGroupedPlan, BoundsTheRowTiles) {
  // Every group may end with a tile that is not full.
  EXPECT_EQ(most_row_tiles(512, 3, 256), 5);
  // No more tiles than rows.
  EXPECT_EQ(most_row_tiles(2, 128, 64), 2);
}

TEST(WgmmaGroupedPlan, StagesFitSharedMemory) {
  for (const int tile_rows : kGroupedTileRows) {
    for (const int count : {1, 2}) {
      for (const int widest : {4, 8}) {
        WgmmaGroupedArgs args = args_of(count, 768);
        args.tile_rows = tile_rows;
        args.widest = widest;
        const auto plan = plan_wgmma_grouped(h200(), args);
        ASSERT_TRUE(plan.has_value()) << tile_rows;
        EXPECT_GE(plan->launch.stages, 3) << tile_rows;
        EXPECT_LE(plan->bytes, wgmma_dynamic_room(h200())) << tile_rows;
        EXPECT_EQ(plan->launch.stage_bytes % kTileAlignment, 0) << tile_rows;
      }
    }
  }
}

TEST(WgmmaGroupedPlan, CountsColumnTilesOfClusters) {
  // 48 n_tiles: 16 a cluster, or 8 of each matrix if both are multiplied.
  EXPECT_EQ(plan_wgmma_grouped(h200(), args_of(1, 768))->launch.column_tiles, 3);
  EXPECT_EQ(plan_wgmma_grouped(h200(), args_of(2, 768))->launch.column_tiles, 6);
}

TEST(WgmmaGroupedPlan, RefusesWidthsThatItCannotStore) {
  EXPECT_FALSE(plan_wgmma_grouped(h200(), args_of(1, 770)).has_value());
  EXPECT_TRUE(plan_wgmma_grouped(h200(), args_of(1, 772)).has_value());
  // Activated results are stored 16 columns at a time.
  EXPECT_FALSE(plan_wgmma_grouped(h200(), args_of(2, 772)).has_value());
}

}  // namespace
}  // namespace bl::test
