// Host side of gemv_i8: shared memory without overlaps, stages that fit and cover an n_tile, ranges
// as the kernel finds them.

#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/cuda/gemm/partition/partition.h"
#include "backend/cuda/layout/code_pack_plan.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using namespace cuda;

constexpr int kFixed = 20000;
constexpr int kAll = 227 << 10;  // shared memory of a CTA

// GEMMs of matrices that exist only as plans.
struct Gemm {
  std::vector<CodePackPlan> plans;
  std::vector<std::span<const CopyBlock>> copy_blocks;
  std::vector<std::int32_t> begins;
  PackedGemmArgs args;

  explicit Gemm(std::vector<CodePackPlan> of, int ctas) : plans(std::move(of)) {
    std::vector<NTileCosts> costs;
    int k_blocks = 0;
    for (const CodePackPlan& plan : plans) {
      PackedGemmMatrix& m = args.matrices[args.count];
      m.view.kind = plan.kind;
      m.view.n_tiles = static_cast<std::int32_t>(plan.n_tiles());
      m.view.n_tile_bytes = plan.n_tile_bytes();
      m.view.k_block_count = static_cast<std::int32_t>(plan.k_blocks.size());
      m.view.copy_block_count = static_cast<std::int32_t>(plan.copy_blocks.size());
      m.view.copy_blocks = plan.copy_blocks.data();
      m.view.groups = plan.groups;
      m.view.k_steps = static_cast<std::int32_t>(plan.k_steps());
      m.copy_block_bytes = static_cast<std::int32_t>(plan.max_copy_block_bytes());
      m.copy_block_scale_bytes = static_cast<std::int32_t>(plan.max_copy_block_scale_bytes());
      m.input_layout = args.count++;
      m.k_blocks_at = k_blocks * static_cast<int>(sizeof(KBlock));
      k_blocks += m.view.k_block_count;
      copy_blocks.emplace_back(plan.copy_blocks);
      costs.push_back({m.view.n_tiles, 1});
    }
    args.tokens = 1;
    begins = partition_n_tiles(costs, ctas);
  }
  CtaRanges cta_ranges() const { return {static_cast<int>(begins.size()) - 1, begins}; }
  GemvSmemLayout layout(bool pipeline = true) const {
    return lay_out_gemv_i8(args, cta_ranges(),
                           {.fixed = kFixed, .all = kAll, .pipeline = pipeline});
  }
  GemvLaunchPlan plan() const { return plan_gemv_i8(args, cta_ranges(), layout(), copy_blocks); }
};

std::vector<CodePackPlan> mixes(Engine& random) {
  std::vector<CodePackPlan> plans;
  const std::vector<GroupShape> small(48, {4, 32});  // as many scales as possible
  plans.push_back(plan_codes(random_exl2(small, 64, random), 64));
  plans.push_back(
      plan_codes(random_exl2({{5, 64}, {5, 32}, {4, 1024}, {3, 160}, {2, 96}}, 96, random), 90));
  plans.push_back(plan_codes(random_exl2({{8, 96}, {6, 2048}, {2, 4096}}, 32, random), 32));
  return plans;
}

// Computes what a stage holds of an n_tile, as the producer warp does.
struct StageLayout {
  std::uint32_t codes, scales;
  int k_blocks;
};
StageLayout stage_of(const Gemm& gemm, int matrix, int from, int to) {
  const std::span<const CopyBlock> copy_blocks = gemm.copy_blocks[static_cast<std::size_t>(matrix)];
  const CopyBlock& first = copy_blocks[static_cast<std::size_t>(from)];
  const CopyBlock& last = copy_blocks[static_cast<std::size_t>(to)];
  const auto scale = static_cast<std::uint32_t>(scale_bytes(gemm.args.matrices[matrix].view.kind));
  const std::uint32_t begin = first.first_group * scale / 16 * 16;
  const std::uint32_t end = ((last.first_group + last.groups) * scale + 15) / 16 * 16;
  return {(last.offset + last.size - first.offset) * 64, end - begin,
          last.first_k_block + last.k_blocks - first.first_k_block};
}

void check_stages(const Gemm& gemm, const GemvSmemLayout& layout, const GemvLaunchPlan& plan,
                  int matrix) {
  const GemvSource& source = plan.sources[matrix];
  const int copy_blocks =
      static_cast<int>(gemm.copy_blocks[static_cast<std::size_t>(matrix)].size());
  ASSERT_EQ(source.copy_blocks, copy_blocks);
  for (int n_tiles = 1; n_tiles <= kGemvNTiles; ++n_tiles) {
    const int joined = source.joined[n_tiles - 1];
    const int loads = source.loads[n_tiles - 1];
    ASSERT_GT(joined, 0);
    EXPECT_GE(loads * joined, copy_blocks);
    EXPECT_LT((loads - 1) * joined, copy_blocks);
    for (int i = 0; i < loads; ++i) {
      const StageLayout load =
          stage_of(gemm, matrix, i * joined, std::min((i + 1) * joined, copy_blocks) - 1);
      if (i == 0) {
        EXPECT_EQ(source.first_codes[n_tiles - 1], load.codes);
      }
      EXPECT_LE(load.k_blocks, 255);
      if (n_tiles * joined > layout.pipeline.most_joined) continue;  // no group has so many n_tiles
      EXPECT_LE(static_cast<int>(load.scales) * n_tiles, layout.pipeline.scale_room);
      EXPECT_LE(static_cast<int>(load.codes) * n_tiles,
                layout.pipeline.stage_bytes - layout.pipeline.scale_room);
    }
  }
}

TEST(GemvLaunchPlan, StagesHaveRoom) {
  Engine random(5);
  for (const int ctas : {3, 8, 132}) {
    const Gemm gemm(mixes(random), ctas);
    const GemvSmemLayout layout = gemm.layout();
    const GemvLaunchPlan plan = gemm.plan();
    EXPECT_GE(layout.pipeline.stages, 1);
    for (int m = 0; m < gemm.args.count; ++m) check_stages(gemm, layout, plan, m);
  }
}

TEST(GemvLaunchPlan, NothingOverlaps) {
  Engine random(6);
  Gemm gemm(mixes(random), 132);
  for (const int tokens : {1, 2, 4}) {
    gemm.args.tokens = tokens;
    const GemvSmemLayout layout = gemm.layout();
    int k_steps = 0;
    int k_blocks = 0;
    for (int m = 0; m < gemm.args.count; ++m) {
      const CodeMatrixView& view = gemm.args.matrices[m].view;
      k_steps = std::max(k_steps, view.k_steps);
      k_blocks += view.k_block_count;
    }
    EXPECT_EQ(layout.limb_scale_at, k_steps * kInputKStepBytes);
    EXPECT_EQ(layout.input_layout_bytes, layout.limb_scale_at + k_steps * kLimbScaleBytes);
    // Every range has one n_tile, so no range has two matrices.
    if (tokens == 1) {
      EXPECT_EQ(layout.token_stride, layout.input_layout_bytes);
    } else {  // neighbours' limbs lie in different banks
      EXPECT_GE(layout.token_stride, layout.input_layout_bytes);
      EXPECT_EQ(layout.token_stride % 128, 64);
    }
    EXPECT_GE(layout.tables_at, kFixed + tokens * layout.token_stride);
    EXPECT_GE(layout.pipeline_offset,
              layout.tables_at + k_blocks * static_cast<int>(sizeof(KBlock)));
    EXPECT_EQ(layout.bytes, layout.pipeline_offset + PipelineShape::kHeadersBytes +
                                layout.pipeline.stages * layout.pipeline.stage_bytes);
    EXPECT_LE(layout.bytes, kAll);
    EXPECT_EQ((layout.tables_at | layout.pipeline_offset | layout.pipeline.scale_room |
               layout.pipeline.stage_bytes) %
                  128,
              0);
    const GemvSmemLayout without = gemm.layout(false);
    EXPECT_EQ(without.bytes, without.tables_at);
    EXPECT_EQ(without.pipeline.stages, 0);
  }
}

TEST(GemvLaunchPlan, ThereIsRoomForTheInputLayoutsOfARange) {
  Engine random(6);
  Gemm gemm(mixes(random),
            3);  // 4, 6 and 2 n_tiles: the last range has both of the last two matrices
  EXPECT_EQ(gemm.layout().token_stride, 2 * gemm.layout().input_layout_bytes);
  EXPECT_EQ(Gemm(mixes(random), 1).layout().token_stride, 3 * gemm.layout().input_layout_bytes);
  gemm.args.matrices[2].input_layout = 1;
  EXPECT_EQ(gemm.layout().token_stride, gemm.layout().input_layout_bytes);
  gemm.args.matrices[1].input_layout = 2;
  gemm.args.matrices[2].input_layout = 0;
  EXPECT_EQ(gemm.layout().token_stride, 3 * gemm.layout().input_layout_bytes);
  gemm.args.gated = true;
  gemm.args.matrices[1].input_layout = 1;
  EXPECT_EQ(gemm.layout().token_stride, 2 * gemm.layout().input_layout_bytes);
}

TEST(GemvLaunchPlan, PairsHaveTablesOfTheirOwn) {
  Engine random(10);
  std::vector<CodePackPlan> plans;
  plans.push_back(plan_codes(random_exl2(std::vector<GroupShape>(45, {3, 64}), 64, random), 64));
  Gemm gemm(std::move(plans), 132);
  EXPECT_EQ(gemm.plan().sources[0].k_block_bytes, sizeof(KBlock));
  const PairTables& paired = gemm.plans[0].paired;
  CodeMatrixView& view = gemm.args.matrices[0].view;
  view.pair_count = static_cast<std::int32_t>(paired.pairs.size());
  gemm.copy_blocks[0] = paired.copy_blocks;
  gemm.args.pairs = true;
  const GemvSmemLayout layout = gemm.layout();
  EXPECT_EQ(view.pair_count, 23);
  EXPECT_GE(layout.pipeline_offset - layout.tables_at, 23 * 80);
  EXPECT_EQ(layout.input_layout_bytes, view.k_steps * (kInputKStepBytes + kLimbScaleBytes));
  const GemvLaunchPlan plan = gemm.plan();
  EXPECT_EQ(plan.sources[0].k_block_bytes, sizeof(KBlockPair));
  check_stages(gemm, layout, plan, 0);
}

TEST(GemvLaunchPlan, LargeInputsExceedSharedMemory) {
  Engine random(7);
  std::vector<CodePackPlan> plans;
  plans.push_back(plan_codes(random_exl2({{4, 1 << 16}}, 32, random), 32));
  EXPECT_GT(Gemm(std::move(plans), 132).layout().bytes, kAll);
}

TEST(GemvLaunchPlan, NTilesFindTheirMatrix) {
  Engine random(8);
  Gemm gemm(mixes(random), 132);  // 4, 6 and 2 n_tiles
  GemvLaunchPlan plan = gemm.plan();
  int n_tile = 0;
  for (int m = 0; m < gemm.args.count; ++m) {
    for (int i = 0; i < gemm.args.matrices[m].view.n_tiles; ++i, ++n_tile) {
      EXPECT_EQ(plan.matrix_of(n_tile), m) << n_tile;
    }
  }
  EXPECT_EQ(n_tile, 12);
  // Gated: n_tiles count once.
  std::vector<CodePackPlan> twins;
  for (int i = 0; i < 2; ++i) {
    twins.push_back(plan_codes(random_exl2({{4, 256}}, 64, random), 64));
  }
  Gemm gated(std::move(twins), 132);
  gated.args.gated = true;
  plan = gated.plan();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(plan.matrix_of(i), 0);
}

TEST(GemvLaunchPlan, LargeTablesStayInDeviceMemory) {
  Engine random(9);
  std::vector<CodePackPlan> plans;
  plans.push_back(plan_codes(random_exl2({{2, 128}}, 16 * 200, random), 16 * 200));
  plans.push_back(plan_codes(random_exl2({{4, 32 * 32 * 17}}, 16, random), 16));
  const Gemm few(plans, CtaRangeBegins::kMost);
  const Gemm many(std::move(plans), CtaRangeBegins::kMost + 1);
  GemvLaunchPlan plan = few.plan();
  EXPECT_EQ(plan.begins.far, nullptr);
  EXPECT_TRUE(std::equal(few.begins.begin(), few.begins.end(), plan.begins.near));
  EXPECT_EQ(plan.sources[0].far_copy_blocks, nullptr);
  EXPECT_EQ(plan.copy_blocks[0][0].size, few.copy_blocks[0][0].size);
  ASSERT_GT(few.copy_blocks[1].size(), std::size_t{GemvLaunchPlan::kMostCopyBlocks});
  EXPECT_EQ(plan.sources[1].far_copy_blocks, few.args.matrices[1].view.copy_blocks);
  // More begins than a kernel parameter holds are read from device memory.
  const std::int32_t device_copy[1] = {};
  EXPECT_EQ(CtaRangeBegins(few.cta_ranges(), device_copy).far, nullptr);
  EXPECT_EQ(CtaRangeBegins(many.cta_ranges(), device_copy).far, device_copy);
}

}  // namespace
}  // namespace bl::test
