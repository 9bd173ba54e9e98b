// A packed matrix's memory: views find the plan's tables, whichever of them are empty.

#include "backend/cuda/layout/code_tables.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cuda/layout/k_step_table.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using namespace cuda;

template <class T>
void expect_is(const std::vector<T>& table, const T* found) {
  if (table.empty()) {
    EXPECT_EQ(found, nullptr);
  } else {
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(std::memcmp(found, table.data(), table.size() * sizeof(T)), 0);
  }
}

void expect_tables(const NTileTables& of, const CodeView& found) {
  expect_is(of.k_blocks, found.view.k_blocks);
  expect_is(of.copy_blocks, found.view.copy_blocks);
  expect_is(of.runs, found.view.runs);
  expect_is(of.paired.pairs, found.view.pairs);
  expect_is(of.paired.copy_blocks, found.view.pair_copy_blocks);
  expect_is(of.fragment_offset_of_feature, found.fragment_offset_of_feature);
  EXPECT_EQ(found.view.k_block_count, static_cast<int>(of.k_blocks.size()));
  EXPECT_EQ(found.view.copy_block_count, static_cast<int>(of.copy_blocks.size()));
  EXPECT_EQ(found.view.run_count, static_cast<int>(of.runs.size()));
  EXPECT_EQ(found.view.pair_count, static_cast<int>(of.paired.pairs.size()));
}

// Every k_step has its k_block's group and width, and begins where the codes before it end.
void expect_k_steps(const CodePackPlan& plan, const std::byte* at) {
  const auto k_steps = static_cast<int>(plan.k_steps());
  const KStepTable table(at, k_steps);
  std::uint32_t offset = 0;
  for (int k = 0; k < k_steps; ++k) {
    const auto i = static_cast<std::size_t>(k);
    const KStepEntry& entry = table.entries[k];
    EXPECT_EQ(entry.offset, offset);
    EXPECT_EQ(entry.group, plan.group_of_k_step[i]);
    EXPECT_EQ(entry.bits, plan.bits_of_k_step[i]);
    EXPECT_EQ(table.widths[k / 2] >> k % 2 * 8 & 0xff, entry.bits);
    offset += entry.bits;
  }
  for (int k = k_steps; k < k_step_entries(k_steps); ++k) {
    EXPECT_EQ(table.entries[k].offset, offset);
    EXPECT_EQ(table.entries[k].bits, 0);
  }
}

void expect_found(const CodePackPlan& plan) {
  const CodePackPlan::Layout layout = plan.layout();
  const std::vector<std::byte> tables = tables_of(plan, layout);
  ASSERT_EQ(layout.tables() + tables.size(), layout.total);
  EXPECT_GE(layout.scales, plan.code_bytes());
  EXPECT_GE(layout.tables(), layout.scales + plan.scale_bytes_total());
  std::vector<std::byte> memory(layout.total);
  std::memcpy(memory.data() + layout.tables(), tables.data(), tables.size());
  const CodeViews views = views_of(plan, layout, memory.data());
  expect_tables(plan, views);
  expect_is(plan.feature_of_k, views.feature_of_k);
  expect_k_steps(plan, views.view.k_step_table);
  const CodeMatrixView& view = views.view;
  EXPECT_EQ(view.codes, memory.data());
  EXPECT_EQ(view.scales, memory.data() + layout.scales);
  EXPECT_EQ(view.k_steps, plan.k_steps());
  EXPECT_EQ(view.n_tiles, plan.n_tiles());
  EXPECT_EQ(view.kind, plan.kind);
  ASSERT_EQ(views.k_splits.size(), plan.k_splits.size());
  for (std::size_t i = 0; i < plan.k_splits.size(); ++i) {
    const CodeView& k_split = views.k_splits[i];
    expect_tables(plan.k_splits[i], k_split);
    EXPECT_EQ(k_split.view.codes, view.codes + plan.k_splits[i].first_byte);
    EXPECT_EQ(k_split.view.k_steps, plan.k_splits[i].k_steps);
    EXPECT_EQ(k_split.view.k_step_table, nullptr);
    // Scales and n_tiles are those of the whole matrix: a k_split covers every n_tile.
    EXPECT_EQ(k_split.view.scales, view.scales);
    EXPECT_EQ(k_split.view.n_tile_bytes, view.n_tile_bytes);
  }
}

TEST(CudaCodeTables, ViewsFindThem) {
  Engine random(41);
  // With pairs of k_blocks in both k_splits; with pairs in none; without k_splits.
  std::vector<GroupShape> groups(2, {4, 64});
  groups.insert(groups.end(), 110, GroupShape{3, 64});
  const CodePackPlan paired = plan_codes(random_exl2(groups, 64, random), 64);
  ASSERT_EQ(paired.k_splits.size(), 2u);
  EXPECT_FALSE(paired.k_splits[1].paired.pairs.empty());
  expect_found(paired);
  expect_found(plan_codes(random_exl2({{5, 96}, {4, 5120}}, 96, random), 90));
  expect_found(plan_codes(random_exl2({{6, 128}}, 32, random), 32));
  for (const GptqZeros zeros : {GptqZeros::kConstant, GptqZeros::kWords}) {
    expect_found(plan_codes(random_gptq({4, 2560, 64, 96, true, zeros}, random), 64));
  }
}

}  // namespace
}  // namespace bl::test
