// How the K of a packed matrix is tiled: k_blocks, copy_blocks, limb runs, pairs and k_splits.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "backend/cuda/layout/code_pack_plan.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using namespace cuda;

void expect_copy_blocks_cover_k_blocks(const CodePackPlan& plan) {
  std::uint32_t k_step = 0;
  std::uint32_t offset = 0;
  for (const KBlock& k_block : plan.k_blocks) {
    EXPECT_EQ(k_block.first_k_step, k_step);
    EXPECT_EQ(k_block.offset, offset);
    EXPECT_GE(k_block.k_steps, 1);
    EXPECT_LE(k_block.k_steps, kMaxKBlockSteps);
    for (int u = 0; u < k_block.k_steps; ++u) {
      EXPECT_EQ(plan.group_of_k_step[k_step + static_cast<std::uint32_t>(u)], k_block.group);
      EXPECT_EQ(plan.bits_of_k_step[k_step + static_cast<std::uint32_t>(u)], k_block.bits);
    }
    k_step += k_block.k_steps;
    offset += static_cast<std::uint32_t>(k_block.k_steps) * k_block.bits;
  }
  EXPECT_EQ(k_step, static_cast<std::uint32_t>(plan.k_steps()));
  EXPECT_EQ(std::int64_t{offset} * 64, plan.n_tile_bytes());
  const auto max_bytes = static_cast<int>(plan.max_copy_block_bytes());
  const auto max_scale_bytes = static_cast<int>(plan.max_copy_block_scale_bytes());
  std::uint32_t next = 0;
  for (const CopyBlock& copy_block : plan.copy_blocks) {
    ASSERT_EQ(copy_block.first_k_block, next);
    ASSERT_GE(copy_block.k_blocks, 1);
    ASSERT_LE(next + copy_block.k_blocks, plan.k_blocks.size());
    EXPECT_EQ(copy_block.offset, plan.k_blocks[next].offset);
    EXPECT_EQ(copy_block.first_k_step, plan.k_blocks[next].first_k_step);
    EXPECT_EQ(copy_block.first_group, plan.k_blocks[next].group);
    EXPECT_LE(copy_block.groups, kMaxCopyBlockSteps);
    int k_steps = 0;
    int bytes = 0;
    for (int c = 0; c < copy_block.k_blocks; ++c, ++next) {
      const KBlock& k_block = plan.k_blocks[next];
      k_steps += k_block.k_steps;
      bytes += k_block.k_steps * k_step_bytes(k_block.bits);
      EXPECT_GE(k_block.group, copy_block.first_group);
      EXPECT_LT(k_block.group, copy_block.first_group + copy_block.groups);
    }
    EXPECT_EQ(copy_block.size * 64, bytes);
    EXPECT_EQ(copy_block.k_steps, k_steps);
    EXPECT_LE(bytes, max_bytes);
    EXPECT_LE(k_steps, kMaxCopyBlockSteps);
    const bool last = next == plan.k_blocks.size();
    EXPECT_TRUE(last || k_steps + plan.k_blocks[next].k_steps > kMaxCopyBlockSteps ||
                plan.k_blocks[next].group - copy_block.first_group >= kMaxCopyBlockSteps);
    const int entry = scale_bytes(plan.kind);
    const int lead = copy_block.first_group * entry % 16;
    EXPECT_GE(max_scale_bytes, lead + copy_block.groups * entry);
    EXPECT_EQ(max_scale_bytes % 16, 0);
    EXPECT_LE(max_scale_bytes, kMaxCopyBlockSteps * entry + 24);
  }
  EXPECT_EQ(next, plan.k_blocks.size());
}

// A pipeline stage has room for the largest copy_block of a matrix and of its k_splits, whose
// copy_blocks begin elsewhere: at a group whose scales start in the middle of 16 bytes, or among
// wider codes.
TEST(CudaKBlocks, CopyBlocksOfKSplitsFitTheLargest) {
  Engine random(8);
  int larger = 0;
  const auto expect_room = [&](const CodePackPlan& plan) {
    ASSERT_EQ(plan.k_splits.size(), 2u);
    const auto most_bytes = static_cast<int>(plan.max_copy_block_bytes());
    const auto most_scale_bytes = static_cast<int>(plan.max_copy_block_scale_bytes());
    CodePackPlan whole = plan;
    whole.k_splits.clear();
    bool is_larger = false;
    for (const NTileKSplit& k_split : plan.k_splits) {
      for (const CopyBlock& copy_block : k_split.copy_blocks) {
        const int entry = scale_bytes(plan.kind);
        const int begin = copy_block.first_group * entry / 16 * 16;
        const int end = ((copy_block.first_group + copy_block.groups) * entry + 15) / 16 * 16;
        EXPECT_LE(copy_block.size * k_step_bytes(1), most_bytes);
        EXPECT_LE(end - begin, most_scale_bytes);
        is_larger =
            is_larger || end - begin > static_cast<int>(whole.max_copy_block_scale_bytes()) ||
            copy_block.size * k_step_bytes(1) > static_cast<int>(whole.max_copy_block_bytes());
      }
    }
    larger += is_larger ? 1 : 0;
  };
  for (const std::int32_t in : {5632, 11008, 14336, 28672}) {
    for (const int first : {0, 1, 2, 3, 5, 7}) {
      // Short groups first, as converters write them, then long ones.
      std::vector<GroupShape> groups(static_cast<std::size_t>(first) * 4, GroupShape{5, 32});
      std::int32_t left = in - first * 128;
      for (; left > in / 3; left -= 128) groups.push_back({4, 128});
      for (; left > 0; left -= 128) groups.push_back({3, std::min(left, 128)});
      expect_room(plan_codes(random_exl2(groups, 64, random), 64));
    }
    for (const std::int64_t size : {32, 128}) {
      const GptqShape shape{4, in, 64, size, true, GptqZeros::kBytes};
      expect_room(plan_codes(random_gptq(shape, random), 64));
    }
  }
  EXPECT_GT(larger, 0) << "no k_split has a copy_block larger than those of whole n_tiles";
}

TEST(CudaKBlocks, CopyBlocksCoverEveryKBlockOnce) {
  Engine random(7);
  expect_copy_blocks_cover_k_blocks(
      plan_codes(random_exl2({{8, 96}, {6, 64}, {4, 160}, {2, 32}}, 64, random), 64));
  std::vector<GroupShape> groups(3, GroupShape{5, 32});
  groups.insert(groups.end(), 45, GroupShape{4, 128});
  groups.insert(groups.end(), 70, GroupShape{3, 32});
  groups.push_back({2, 3200});
  expect_copy_blocks_cover_k_blocks(plan_codes(random_exl2(groups, 32, random), 32));
  for (const std::int64_t group_size : {32, 48, 64, 128, 2560}) {
    for (const GptqZeros zeros : {GptqZeros::kConstant, GptqZeros::kBytes, GptqZeros::kWords}) {
      const GptqMatrix matrix = random_gptq({4, 2560, 32, group_size, true, zeros}, random);
      expect_copy_blocks_cover_k_blocks(plan_codes(matrix, 32));
    }
  }
}

// Returns {k_blocks of a run, k_steps of each}.
std::vector<std::pair<int, int>> runs_of(const CodePackPlan& plan) {
  std::vector<std::pair<int, int>> runs;
  std::size_t c = 0;
  for (const LimbRun& run : plan.runs) {
    EXPECT_GT(run.k_steps, 0);  // a zero word ends the runs (limb_input.cuh)
    EXPECT_EQ(run.k_steps % run.k_block_steps, 0);
    runs.emplace_back(run.k_steps / run.k_block_steps, run.k_block_steps);
    for (int k_step = 0; k_step < run.k_steps && c < plan.k_blocks.size(); ++c) {
      EXPECT_EQ(plan.k_blocks[c].first_k_step, run.first_k_step + k_step);
      EXPECT_EQ(plan.k_blocks[c].k_steps, run.k_block_steps);
      k_step += plan.k_blocks[c].k_steps;
    }
  }
  EXPECT_EQ(c, plan.k_blocks.size());
  return runs;
}

TEST(CudaKBlocks, ShortKBlocksOfOneLengthMakeARun) {
  Engine random(11);
  using Runs = std::vector<std::pair<int, int>>;
  std::vector<GroupShape> groups(6, GroupShape{5, 32});
  groups.insert(groups.end(), 3, GroupShape{4, 64});
  groups.push_back({3, 64});  // of another width
  groups.insert(groups.end(), 2, GroupShape{4, 96});
  groups.insert(groups.end(), 2, GroupShape{4, 160});
  EXPECT_EQ(
      runs_of(plan_codes(random_exl2(groups, 32, random), 32)),
      (Runs{
          {4, 1}, {2, 1}, {2, 2}, {1, 2}, {1, 2}, {1, 3}, {1, 3}, {1, 4}, {1, 1}, {1, 4}, {1, 1}}));
}

// A run does not continue in the next copy_block.
TEST(CudaKBlocks, RunsEndWithTheirCopyBlock) {
  Engine random(12);
  std::vector<GroupShape> groups(1, GroupShape{4, 32});
  groups.insert(groups.end(), 20, GroupShape{4, 64});
  const CodePackPlan plan = plan_codes(random_exl2(groups, 32, random), 32);
  ASSERT_EQ(plan.copy_blocks[1].first_k_block, 16);  // 1 + 15 · 2 of 32 k_steps
  const auto begins = [](const LimbRun& run) { return run.first_k_step == 31; };
  EXPECT_TRUE(std::any_of(plan.runs.begin(), plan.runs.end(), begins));
}

// Checks that the pairs of a plan describe the same as its k_blocks.
void expect_pairs_are_k_blocks(const CodePackPlan& plan) {
  std::size_t c = 0;
  std::size_t in_copy_block = 0;
  std::size_t copy_block = 0;
  for (const KBlockPair& pair : plan.paired.pairs) {
    ASSERT_LT(c, plan.k_blocks.size());
    const KBlock& first = plan.k_blocks[c++];
    EXPECT_EQ(pair.codes, first.offset * 64);
    EXPECT_EQ(pair.bits, first.bits);
    const bool both = pair.k_steps > first.k_steps;
    const KBlock& last = both ? plan.k_blocks[c++] : first;
    EXPECT_EQ(pair.k_steps, first.k_steps + (both ? last.k_steps : 0));
    EXPECT_LE(pair.k_steps, 4u);
    EXPECT_EQ(last.bits, first.bits);
    EXPECT_EQ(last.offset, first.offset + (both ? first.k_steps * first.bits : 0));
    const KBlock* const own[2] = {&first, &last};
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(pair.sums[i].limb_scale, own[i]->first_k_step * 16u);
      EXPECT_EQ(pair.sums[i].scales, own[i]->group * 8u);
      EXPECT_EQ(pair.sums[i].centre, static_cast<float>(1 << (first.bits - 1)));
      const bool is_there = i == 0 || both;
      EXPECT_EQ(pair.columns[i].group_scale, is_there ? own[i]->group_scale : 0.0f);
      for (int u = 0; u < 3; ++u) {
        const int k_step = first.first_k_step + u - own[i]->first_k_step;
        const bool reads = is_there && k_step >= 0 && k_step < own[i]->k_steps;
        EXPECT_EQ(pair.columns[i].k_steps[u],
                  reads ? (first.first_k_step + u) * 128 : -kInputZeroBytes);
      }
    }
    // The copy_blocks cover the same ranges.
    if (in_copy_block == 0) {
      EXPECT_EQ(plan.copy_blocks[copy_block].first_k_block, &first - plan.k_blocks.data());
    }
    if (++in_copy_block == plan.paired.copy_blocks[copy_block].k_blocks)
      ++copy_block, in_copy_block = 0;
  }
  EXPECT_EQ(c, plan.k_blocks.size());
  EXPECT_EQ(copy_block, plan.copy_blocks.size());
}

TEST(CudaKBlocks, ShortKBlocksArePaired) {
  Engine random(15);
  const auto plan_of = [&](const std::vector<GroupShape>& groups) {
    return plan_codes(random_exl2(groups, 32, random), 32);
  };
  std::vector<GroupShape> groups(14, GroupShape{5, 32});
  groups.insert(groups.end(), 41, GroupShape{3, 64});
  groups.push_back({2, 96});
  const CodePackPlan plan = plan_of(groups);
  EXPECT_LE(plan.paired.pairs.size(), 31u);
  expect_pairs_are_k_blocks(plan);
  // Long k_blocks are not paired, nor are short ones that stand between them.
  EXPECT_TRUE(plan_of(std::vector<GroupShape>(4, {4, 128})).paired.pairs.empty());
  EXPECT_TRUE(plan_of({{4, 64}, {4, 128}, {4, 64}, {3, 64}, {3, 32}}).paired.pairs.empty());
}

// The two k_splits of a long matrix must each be a valid matrix of their own.
TEST(CudaKBlocks, LongRowsHaveTwoKSplits) {
  Engine random(13);
  std::vector<GroupShape> groups(5, GroupShape{6, 32});
  groups.insert(groups.end(), 37, GroupShape{4, 128});
  groups.insert(groups.end(), 90, GroupShape{3, 64});
  const CodePackPlan plan = plan_codes(random_exl2(groups, 64, random), 64);
  ASSERT_EQ(plan.k_splits.size(), 2u);
  std::size_t k_block = 0;
  std::int32_t k_step = 0;
  std::int64_t cost[2] = {0, 0};
  int paired = 0;
  for (std::size_t p = 0; p < 2; ++p) {
    const NTileKSplit& k_split = plan.k_splits[p];
    CodePackPlan alone = plan;
    alone.k_blocks = k_split.k_blocks;
    alone.copy_blocks = k_split.copy_blocks;
    alone.runs = k_split.runs;
    alone.paired = k_split.paired;
    alone.group_of_k_step.erase(alone.group_of_k_step.begin(),
                                alone.group_of_k_step.begin() + k_step);
    alone.group_of_k_step.resize(static_cast<std::size_t>(k_split.k_steps));
    alone.bits_of_k_step.erase(alone.bits_of_k_step.begin(), alone.bits_of_k_step.begin() + k_step);
    alone.bits_of_k_step.resize(static_cast<std::size_t>(k_split.k_steps));
    expect_copy_blocks_cover_k_blocks(alone);
    runs_of(alone);
    if (!k_split.paired.pairs.empty()) {
      expect_pairs_are_k_blocks(alone);
      ++paired;
    }
    for (const KBlock& own : k_split.k_blocks) {
      const KBlock& whole = plan.k_blocks[k_block++];
      EXPECT_EQ(own.first_k_step + k_step, whole.first_k_step);
      EXPECT_EQ(own.offset * 64 + k_split.first_byte, whole.offset * 64);
      EXPECT_EQ(own.group, whole.group);
      EXPECT_EQ(own.group_scale, whole.group_scale);
      cost[p] += own.k_steps * own.bits + 8;
    }
    const std::int32_t none =
        std::max(plan.k_splits[0].k_steps, plan.k_splits[1].k_steps) * kKStepSize;
    for (std::size_t c = 0; c < static_cast<std::size_t>(plan.in); ++c) {
      const std::int32_t place = plan.fragment_offset_of_feature[c] - k_step * kKStepSize;
      const bool is_there = place >= 0 && place < k_split.k_steps * kKStepSize;
      ASSERT_EQ(k_split.fragment_offset_of_feature[c], is_there ? place : none) << "feature " << c;
    }
    k_step += k_split.k_steps;
  }
  EXPECT_EQ(k_block, plan.k_blocks.size());
  EXPECT_EQ(paired, 1);  // the second, whose k_blocks are short
  EXPECT_GT(5 * cost[1], 4 * cost[0]);
  EXPECT_GT(5 * cost[0], 4 * cost[1]);
}

TEST(CudaKBlocks, WhichRowsHaveKSplits) {
  Engine random(14);
  const auto k_splits = [&](std::int32_t in, std::int64_t out) {
    return plan_codes(random_exl2({{4, in}}, out, random), out).k_splits.size();
  };
  EXPECT_EQ(k_splits(5120, 5088), 2u);
  EXPECT_EQ(k_splits(5120, 5120), 0u) << "no fewer columns than features";
  EXPECT_EQ(k_splits(5088, 64), 0u) << "too short";
  EXPECT_EQ(plan_codes(random_gptq({4, 5120, 64, 128}, random), 64).k_splits.size(), 2u);
  Exl2Matrix twice = random_exl2({{4, 5120}}, 64, random);
  twice.perm[1] = twice.perm[0];
  EXPECT_TRUE(plan_codes(twice, 64).k_splits.empty()) << "a feature without a k";
}

// Groups without features, which an act-order table may have, do not widen copy_blocks.
TEST(CudaKBlocks, CopyBlocksStayNarrowAcrossEmptyGroups) {
  Engine random(10);
  const GptqMatrix matrix = random_gptq_with_empty_groups(random);
  const CodePackPlan plan = plan_codes(matrix, 32);
  expect_copy_blocks_cover_k_blocks(plan);
  EXPECT_EQ(plan.copy_blocks.size(), 3u);
}

// Tiles random sequences of groups.
TEST(CudaKBlocks, AnyGroupsAreTiledRight) {
  Engine random(16);
  const auto draw = [&](int count) {
    return static_cast<std::size_t>(std::uniform_int_distribution<int>(0, count - 1)(random));
  };
  const int widths[] = {2, 3, 4, 5, 6, 8};
  int paired = 0;
  for (int i = 0; i < 300; ++i) {
    // Runs of one width and length, as files have them, of one group or many.
    std::vector<GroupShape> groups;
    const std::size_t runs = 1 + draw(5);
    for (std::size_t s = 0; s < runs; ++s) {
      const GroupShape group{widths[draw(6)], 32 * static_cast<std::int32_t>(1 + draw(6))};
      groups.insert(groups.end(), 1 + draw(40), group);
    }
    const CodePackPlan plan = plan_codes(random_exl2(groups, 32, random), 32);
    expect_copy_blocks_cover_k_blocks(plan);
    runs_of(plan);
    if (!plan.paired.pairs.empty()) {
      expect_pairs_are_k_blocks(plan);
      EXPECT_LE(plan.paired.pairs.size() * 10, plan.k_blocks.size() * 6);
      ++paired;
    }
    ASSERT_FALSE(HasFailure()) << "round " << i;
  }
  EXPECT_GT(paired, 30);
  EXPECT_LT(paired, 270);
}

}  // namespace
}  // namespace bl::test
