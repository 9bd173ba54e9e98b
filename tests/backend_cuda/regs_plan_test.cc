// How a matrix is divided among the warps of gemm_skinny_regs: every k_step once, where its codes
// are.

#include <gtest/gtest.h>

#include <random>

#include "backend/cuda/gemm/partition/regs_plan.h"

namespace bl::test {
namespace {

using namespace cuda;

// Groups of so many k_steps and bits, divided as add_k_blocks() does.
struct Group {
  int k_steps = 0;
  int bits = 0;
};
std::vector<KBlock> k_blocks_of(const std::vector<Group>& groups) {
  std::vector<KBlock> k_blocks;
  std::uint32_t offset = 0;
  int k_step = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (int left = groups[g].k_steps; left > 0;) {
      KBlock k_block;
      k_block.offset = offset;
      k_block.first_k_step = static_cast<std::uint16_t>(k_step);
      k_block.group = static_cast<std::uint16_t>(g);
      k_block.bits = static_cast<std::uint8_t>(groups[g].bits);
      k_block.k_steps = static_cast<std::uint8_t>(std::min(left, kMaxKBlockSteps));
      offset += static_cast<std::uint32_t>(k_block.k_steps) * k_block.bits;
      k_step += k_block.k_steps;
      left -= k_block.k_steps;
      k_blocks.push_back(k_block);
    }
  }
  return k_blocks;
}

// Reads a quad as the kernel does, and counts its k_steps.
void check_quad(const RegsQuad& quad, const std::vector<KBlock>& k_blocks, std::vector<int>& seen) {
  int copy = 0;
  for (int u = 0; u < kQuadKSteps; ++u) {
    const int bits = k_step_bits(quad.info, u);
    if (bits == 0) {
      EXPECT_EQ(quad.info >> (4 * u) & (0xffffu >> (4 * u)), 0u);
      break;
    }
    const KBlock& k_block = k_blocks[quad.k_block[u]];
    ASSERT_GE(quad.k_step[u], k_block.first_k_step);
    ASSERT_LT(quad.k_step[u], k_block.first_k_step + k_block.k_steps);
    EXPECT_EQ(bits, k_block.bits);
    EXPECT_EQ(quad.group[u], k_block.group);
    ++seen[quad.k_step[u]];
    const bool same_before = u > 0 && quad.k_block[u - 1] == quad.k_block[u];
    const bool same_behind = u + 1 < kQuadKSteps && k_step_bits(quad.info, u + 1) != 0 &&
                             quad.k_block[u + 1] == quad.k_block[u];
    EXPECT_EQ(begins_k_block(quad.info, u), !same_before);
    EXPECT_EQ(ends_k_block(quad.info, u), !same_behind);
    const int codes =
        (static_cast<int>(k_block.offset) + (quad.k_step[u] - k_block.first_k_step) * bits) *
        k_step_bytes(1);
    for (int i = 0; i < k_step_bytes(bits) / 16; ++i, ++copy) {
      const int from = static_cast<int>(quad.codes) * k_step_bytes(1) + copy * 16 +
                       (copy >= quad.first_run_copies ? quad.jump : 0);
      ASSERT_EQ(from, codes + i * 16);
    }
  }
  EXPECT_EQ(copy, quad.copies);
}

RegsPlan check(const std::vector<Group>& groups, int n_tiles, int max_k_splits) {
  const std::vector<KBlock> k_blocks = k_blocks_of(groups);
  const RegsPlan plan = plan_regs(k_blocks, n_tiles, 132, max_k_splits);
  if (plan.k_splits == 0) return plan;
  EXPECT_LE(plan.k_splits, max_k_splits);
  EXPECT_EQ(plan.quads.size(), static_cast<std::size_t>(plan.k_splits) * kKSplitQuads);
  std::vector<int> seen(
      static_cast<std::size_t>(k_blocks.back().first_k_step + k_blocks.back().k_steps));
  for (std::size_t i = 0; i < plan.quads.size(); ++i) {
    check_quad(plan.quads[i], k_blocks, seen);
    const std::size_t warp = i / kWarpQuads % kRegsWarps;
    const std::size_t other = i ^ 1;
    EXPECT_LE((plan.quads[i].copies + plan.quads[other].copies) * 16, plan.code_bytes[warp]);
  }
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  return plan;
}

TEST(RegsPlan, WholeKBlocksOfOneWidth) {
  EXPECT_EQ(check(std::vector<Group>(32, {4, 4}), 1792, 1).k_splits, 1);
  EXPECT_EQ(check(std::vector<Group>(16, {4, 4}), 160, 1).k_splits, 1);
  EXPECT_EQ(check(std::vector<Group>(33, {4, 4}), 256, 1).k_splits, 0)
      << "more than registers hold";
  EXPECT_GE(check(std::vector<Group>(112, {4, 4}), 256, 8).k_splits, 4);
}

// Short groups first, the end of a group last: k_blocks stay whole all the same.
TEST(RegsPlan, ShortKBlocksShareQuads) {
  std::vector<Group> groups(13, {1, 5});
  groups.insert(groups.end(), 28, {4, 4});
  groups.push_back({3, 4});
  const RegsPlan plan = check(groups, 1792, 1);
  ASSERT_EQ(plan.k_splits, 1);
  int whole = 0;
  for (const RegsQuad& quad : plan.quads) whole += quad.info == info_of_whole(4) ? 1 : 0;
  EXPECT_EQ(whole, 28);
}

TEST(RegsPlan, CutWhereWholeKBlocksDoNotFit) {
  std::vector<Group> groups(42, {3, 4});  // 42 quads of whole k_blocks, 32 with cut ones
  groups.push_back({2, 4});
  EXPECT_EQ(check(groups, 1792, 1).k_splits, 1);
}

TEST(RegsPlan, Random) {
  std::mt19937 random(5);
  constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};
  int plans = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<Group> groups(1 + random() % 120);
    for (Group& group : groups) {
      group = {static_cast<int>(1 + random() % 8), kWidths[random() % 6]};
    }
    plans += check(groups, static_cast<int>(1 + random() % 600), static_cast<int>(1 + random() % 8))
                 .k_splits;
  }
  EXPECT_GT(plans, 100);
}

// Shapes that were measured, on 132 multiprocessors.
TEST(RegsPlan, SmallRangesAreThoseOfSmallModels) {
  const auto is_small = [](int in, int out) {
    return is_small_cta_range(in / 32, std::int64_t{in} / 32 * (out / 16), 132);
  };
  EXPECT_FALSE(is_small(4096, 4096));
  EXPECT_FALSE(is_small(4096, 6144));
  EXPECT_FALSE(is_small(4096, 2 * 14336));
  EXPECT_FALSE(is_small(14336, 4096));
  EXPECT_FALSE(is_small(11008, 4096));
  EXPECT_TRUE(is_small(2048, 2048));
  EXPECT_TRUE(is_small(2048, 2 * 5632));
  EXPECT_TRUE(is_small(5632, 2048));
  EXPECT_TRUE(is_small(2048, 32000));
}

}  // namespace
}  // namespace bl::test
