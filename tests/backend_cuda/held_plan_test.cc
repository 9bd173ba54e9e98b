// How a matrix is cut among warps that hold its activations: every unit once, where its codes are.

#include <gtest/gtest.h>

#include <random>

#include "backend/cuda/gemm/skinny/regs_plan.h"

namespace bl::test {
namespace {

using namespace cuda;

// Groups of so many units and bits, as add_chunks cuts them.
struct Group {
  int units = 0;
  int bits = 0;
};
std::vector<Chunk> chunks_of(const std::vector<Group>& groups) {
  std::vector<Chunk> chunks;
  std::uint32_t offset = 0;
  int unit = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (int left = groups[g].units; left > 0;) {
      Chunk chunk;
      chunk.offset = offset;
      chunk.first_unit = static_cast<std::uint16_t>(unit);
      chunk.group = static_cast<std::uint16_t>(g);
      chunk.bits = static_cast<std::uint8_t>(groups[g].bits);
      chunk.units = static_cast<std::uint8_t>(std::min(left, kMaxChunkUnits));
      offset += static_cast<std::uint32_t>(chunk.units) * chunk.bits;
      unit += chunk.units;
      left -= chunk.units;
      chunks.push_back(chunk);
    }
  }
  return chunks;
}

// Reads a quad as the kernel does; counts its units.
void check_quad(const HeldQuad& quad, const std::vector<Chunk>& chunks, std::vector<int>& seen) {
  int piece = 0;
  for (int u = 0; u < kQuadUnits; ++u) {
    const int bits = unit_bits(quad.info, u);
    if (bits == 0) {
      EXPECT_EQ(quad.info >> (4 * u) & (0xffffu >> (4 * u)), 0u);
      break;
    }
    const Chunk& chunk = chunks[quad.chunk[u]];
    ASSERT_GE(quad.unit[u], chunk.first_unit);
    ASSERT_LT(quad.unit[u], chunk.first_unit + chunk.units);
    EXPECT_EQ(bits, chunk.bits);
    EXPECT_EQ(quad.group[u], chunk.group);
    ++seen[quad.unit[u]];
    const bool same_before = u > 0 && quad.chunk[u - 1] == quad.chunk[u];
    const bool same_behind = u + 1 < kQuadUnits && unit_bits(quad.info, u + 1) != 0 &&
                             quad.chunk[u + 1] == quad.chunk[u];
    EXPECT_EQ(begins_chunk(quad.info, u), !same_before);
    EXPECT_EQ(ends_chunk(quad.info, u), !same_behind);
    const int codes =
        (static_cast<int>(chunk.offset) + (quad.unit[u] - chunk.first_unit) * bits) * unit_bytes(1);
    for (int i = 0; i < unit_bytes(bits) / 16; ++i, ++piece) {
      const int from = static_cast<int>(quad.codes) * unit_bytes(1) + piece * 16 +
                       (piece >= quad.split ? quad.jump : 0);
      ASSERT_EQ(from, codes + i * 16);
    }
  }
  EXPECT_EQ(piece, quad.pieces);
}

HeldPlan check(const std::vector<Group>& groups, int strips, int most_parts) {
  const std::vector<Chunk> chunks = chunks_of(groups);
  const HeldPlan plan = plan_held(chunks, strips, 132, most_parts);
  if (plan.parts == 0) return plan;
  EXPECT_LE(plan.parts, most_parts);
  EXPECT_EQ(plan.quads.size(), static_cast<std::size_t>(plan.parts) * kPartQuads);
  std::vector<int> seen(static_cast<std::size_t>(chunks.back().first_unit + chunks.back().units));
  for (std::size_t i = 0; i < plan.quads.size(); ++i) {
    check_quad(plan.quads[i], chunks, seen);
    const std::size_t warp = i / kWarpQuads % kHeldWarps;
    const std::size_t other = i ^ 1;
    EXPECT_LE((plan.quads[i].pieces + plan.quads[other].pieces) * 16, plan.code_bytes[warp]);
  }
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
  return plan;
}

TEST(HeldPlan, WholeChunksOfOneWidth) {
  EXPECT_EQ(check(std::vector<Group>(32, {4, 4}), 1792, 1).parts, 1);
  EXPECT_EQ(check(std::vector<Group>(16, {4, 4}), 160, 1).parts, 1);
  EXPECT_EQ(check(std::vector<Group>(33, {4, 4}), 256, 1).parts, 0) << "more than registers hold";
  EXPECT_GE(check(std::vector<Group>(112, {4, 4}), 256, 8).parts, 4);
}

// Short groups first, the rest of a group last: chunks stay whole all the same.
TEST(HeldPlan, ShortGroupsShareQuads) {
  std::vector<Group> groups(13, {1, 5});
  groups.insert(groups.end(), 28, {4, 4});
  groups.push_back({3, 4});
  const HeldPlan plan = check(groups, 1792, 1);
  ASSERT_EQ(plan.parts, 1);
  int whole = 0;
  for (const HeldQuad& quad : plan.quads) whole += quad.info == info_of_whole(4) ? 1 : 0;
  EXPECT_EQ(whole, 28);
}

TEST(HeldPlan, CutWhereWholeChunksDoNotFit) {
  std::vector<Group> groups(42, {3, 4});  // 42 quads of whole chunks, 32 of cut ones
  groups.push_back({2, 4});
  EXPECT_EQ(check(groups, 1792, 1).parts, 1);
}

TEST(HeldPlan, Random) {
  std::mt19937 random(5);
  constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};
  int plans = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<Group> groups(1 + random() % 120);
    for (Group& group : groups) {
      group = {static_cast<int>(1 + random() % 8), kWidths[random() % 6]};
    }
    plans += check(groups, static_cast<int>(1 + random() % 600), static_cast<int>(1 + random() % 8))
                 .parts;
  }
  EXPECT_GT(plans, 100);
}

// Shapes that were measured, on 132 multiprocessors.
TEST(HeldPlan, SmallSharesAreThoseOfSmallModels) {
  const auto is_small = [](int in, int out) {
    return is_small_share(in / 32, std::int64_t{in} / 32 * (out / 16), 132);
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
