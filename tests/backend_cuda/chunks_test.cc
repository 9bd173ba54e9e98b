// How the slots of a packed matrix are cut: chunks, pieces, runs, pairs and parts.

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

void expect_pieces_cover_chunks(const CodePackPlan& plan) {
  std::uint32_t unit = 0;
  std::uint32_t offset = 0;
  for (const Chunk& chunk : plan.chunks) {
    EXPECT_EQ(chunk.first_unit, unit);
    EXPECT_EQ(chunk.offset, offset);
    EXPECT_GE(chunk.units, 1);
    EXPECT_LE(chunk.units, kMaxChunkUnits);
    for (int u = 0; u < chunk.units; ++u) {
      EXPECT_EQ(plan.group_of_unit[unit + static_cast<std::uint32_t>(u)], chunk.group);
      EXPECT_EQ(plan.bits_of_unit[unit + static_cast<std::uint32_t>(u)], chunk.bits);
    }
    unit += chunk.units;
    offset += static_cast<std::uint32_t>(chunk.units) * chunk.bits;
  }
  EXPECT_EQ(unit, static_cast<std::uint32_t>(plan.units()));
  EXPECT_EQ(std::int64_t{offset} * 64, plan.strip_bytes());
  const auto max_bytes = static_cast<int>(plan.max_piece_bytes());
  const auto max_scale_bytes = static_cast<int>(plan.max_piece_scale_bytes());
  std::uint32_t next = 0;
  for (const Piece& piece : plan.pieces) {
    ASSERT_EQ(piece.first_chunk, next);
    ASSERT_GE(piece.chunks, 1);
    ASSERT_LE(next + piece.chunks, plan.chunks.size());
    EXPECT_EQ(piece.offset, plan.chunks[next].offset);
    EXPECT_EQ(piece.first_unit, plan.chunks[next].first_unit);
    EXPECT_EQ(piece.first_group, plan.chunks[next].group);
    EXPECT_LE(piece.groups, kMaxPieceUnits);
    int units = 0;
    int bytes = 0;
    for (int c = 0; c < piece.chunks; ++c, ++next) {
      const Chunk& chunk = plan.chunks[next];
      units += chunk.units;
      bytes += chunk.units * unit_bytes(chunk.bits);
      EXPECT_GE(chunk.group, piece.first_group);
      EXPECT_LT(chunk.group, piece.first_group + piece.groups);
    }
    EXPECT_EQ(piece.size * 64, bytes);
    EXPECT_EQ(piece.units, units);
    EXPECT_LE(bytes, max_bytes);
    EXPECT_LE(units, kMaxPieceUnits);
    const bool last = next == plan.chunks.size();
    EXPECT_TRUE(last || units + plan.chunks[next].units > kMaxPieceUnits ||
                plan.chunks[next].group - piece.first_group >= kMaxPieceUnits);
    const int entry = scale_bytes(plan.kind);
    const int lead = piece.first_group * entry % 16;
    EXPECT_GE(max_scale_bytes, lead + piece.groups * entry);
    EXPECT_EQ(max_scale_bytes % 16, 0);
    EXPECT_LE(max_scale_bytes, kMaxPieceUnits * entry + 24);
  }
  EXPECT_EQ(next, plan.chunks.size());
}

// A ring has room for the largest piece, and those of parts begin elsewhere: at a group whose
// scales lie in the middle of 16 bytes, or among wider codes.
TEST(CudaChunks, PiecesOfPartsAreNoLargerThanTheLargest) {
  Engine random(8);
  int larger = 0;
  const auto expect_room = [&](const CodePackPlan& plan) {
    ASSERT_EQ(plan.parts.size(), 2u);
    const auto most_bytes = static_cast<int>(plan.max_piece_bytes());
    const auto most_scale_bytes = static_cast<int>(plan.max_piece_scale_bytes());
    CodePackPlan whole = plan;
    whole.parts.clear();
    bool is_larger = false;
    for (const StripPart& part : plan.parts) {
      for (const Piece& piece : part.pieces) {
        const int entry = scale_bytes(plan.kind);
        const int begin = piece.first_group * entry / 16 * 16;
        const int end = ((piece.first_group + piece.groups) * entry + 15) / 16 * 16;
        EXPECT_LE(piece.size * unit_bytes(1), most_bytes);
        EXPECT_LE(end - begin, most_scale_bytes);
        is_larger = is_larger || end - begin > static_cast<int>(whole.max_piece_scale_bytes()) ||
                    piece.size * unit_bytes(1) > static_cast<int>(whole.max_piece_bytes());
      }
    }
    larger += is_larger ? 1 : 0;
  };
  for (const std::int32_t in : {5632, 11008, 14336, 28672}) {
    for (const int first : {0, 1, 2, 3, 5, 7}) {
      // Short groups first, as converters have them, then long ones.
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
  EXPECT_GT(larger, 0) << "nothing that the whole strip's pieces would not have had room for";
}

TEST(CudaChunks, PiecesCoverEveryChunkOnce) {
  Engine random(7);
  expect_pieces_cover_chunks(
      plan_codes(random_exl2({{8, 96}, {6, 64}, {4, 160}, {2, 32}}, 64, random), 64));
  std::vector<GroupShape> groups(3, GroupShape{5, 32});
  groups.insert(groups.end(), 45, GroupShape{4, 128});
  groups.insert(groups.end(), 70, GroupShape{3, 32});
  groups.push_back({2, 3200});
  expect_pieces_cover_chunks(plan_codes(random_exl2(groups, 32, random), 32));
  for (const std::int64_t group_size : {32, 48, 64, 128, 2560}) {
    for (const GptqZeros zeros : {GptqZeros::kConstant, GptqZeros::kBytes, GptqZeros::kWords}) {
      const GptqMatrix matrix = random_gptq({4, 2560, 32, group_size, true, zeros}, random);
      expect_pieces_cover_chunks(plan_codes(matrix, 32));
    }
  }
}

// {chunks of a run, units of each}
std::vector<std::pair<int, int>> runs_of(const CodePackPlan& plan) {
  std::vector<std::pair<int, int>> runs;
  std::size_t c = 0;
  for (const DigitRun& run : plan.runs) {
    EXPECT_GT(run.units, 0);  // a word of zeros ends them (token_input.cuh)
    EXPECT_EQ(run.units % run.chunk_units, 0);
    runs.emplace_back(run.units / run.chunk_units, run.chunk_units);
    for (int unit = 0; unit < run.units && c < plan.chunks.size(); ++c) {
      EXPECT_EQ(plan.chunks[c].first_unit, run.first_unit + unit);
      EXPECT_EQ(plan.chunks[c].units, run.chunk_units);
      unit += plan.chunks[c].units;
    }
  }
  EXPECT_EQ(c, plan.chunks.size());
  return runs;
}

TEST(CudaChunks, ShortChunksOfOneLengthMakeARun) {
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

// A run does not go on in another piece.
TEST(CudaChunks, RunsEndWithTheirPiece) {
  Engine random(12);
  std::vector<GroupShape> groups(1, GroupShape{4, 32});
  groups.insert(groups.end(), 20, GroupShape{4, 64});
  const CodePackPlan plan = plan_codes(random_exl2(groups, 32, random), 32);
  ASSERT_EQ(plan.pieces[1].first_chunk, 16);  // 1 + 15 · 2 of 32 units
  const auto begins = [](const DigitRun& run) { return run.first_unit == 31; };
  EXPECT_TRUE(std::any_of(plan.runs.begin(), plan.runs.end(), begins));
}

// The pairs of a plan tell lanes the same as its chunks do.
void expect_pairs_are_chunks(const CodePackPlan& plan) {
  std::size_t c = 0;
  std::size_t in_piece = 0;
  std::size_t piece = 0;
  for (const ChunkPair& pair : plan.paired.pairs) {
    ASSERT_LT(c, plan.chunks.size());
    const Chunk& first = plan.chunks[c++];
    EXPECT_EQ(pair.codes, first.offset * 64);
    EXPECT_EQ(pair.bits, first.bits);
    const bool both = pair.units > first.units;
    const Chunk& last = both ? plan.chunks[c++] : first;
    EXPECT_EQ(pair.units, first.units + (both ? last.units : 0));
    EXPECT_LE(pair.units, 4u);
    EXPECT_EQ(last.bits, first.bits);
    EXPECT_EQ(last.offset, first.offset + (both ? first.units * first.bits : 0));
    const Chunk* const own[2] = {&first, &last};
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(pair.sums[i].worth, own[i]->first_unit * 16u);
      EXPECT_EQ(pair.sums[i].scales, own[i]->group * 8u);
      EXPECT_EQ(pair.sums[i].centre, static_cast<float>(1 << (first.bits - 1)));
      const bool is_there = i == 0 || both;
      EXPECT_EQ(pair.columns[i].group_scale, is_there ? own[i]->group_scale : 0.0f);
      for (int u = 0; u < 3; ++u) {
        const int unit = first.first_unit + u - own[i]->first_unit;
        const bool reads = is_there && unit >= 0 && unit < own[i]->units;
        EXPECT_EQ(pair.columns[i].units[u],
                  reads ? (first.first_unit + u) * 128 : -kInputZeroBytes);
      }
    }
    // Pieces are the same stretches.
    if (in_piece == 0) {
      EXPECT_EQ(plan.pieces[piece].first_chunk, &first - plan.chunks.data());
    }
    if (++in_piece == plan.paired.pieces[piece].chunks) ++piece, in_piece = 0;
  }
  EXPECT_EQ(c, plan.chunks.size());
  EXPECT_EQ(piece, plan.pieces.size());
}

TEST(CudaChunks, ShortChunksGoInPairs) {
  Engine random(15);
  const auto plan_of = [&](const std::vector<GroupShape>& groups) {
    return plan_codes(random_exl2(groups, 32, random), 32);
  };
  std::vector<GroupShape> groups(14, GroupShape{5, 32});
  groups.insert(groups.end(), 41, GroupShape{3, 64});
  groups.push_back({2, 96});
  const CodePackPlan plan = plan_of(groups);
  EXPECT_LE(plan.paired.pairs.size(), 31u);
  expect_pairs_are_chunks(plan);
  // Long chunks find nobody to go with, nor do those between them.
  EXPECT_TRUE(plan_of(std::vector<GroupShape>(4, {4, 128})).paired.pairs.empty());
  EXPECT_TRUE(plan_of({{4, 64}, {4, 128}, {4, 64}, {3, 64}, {3, 32}}).paired.pairs.empty());
}

// The two parts of a long row are as if each were a matrix of its own.
TEST(CudaChunks, LongRowsHaveTwoParts) {
  Engine random(13);
  std::vector<GroupShape> groups(5, GroupShape{6, 32});
  groups.insert(groups.end(), 37, GroupShape{4, 128});
  groups.insert(groups.end(), 90, GroupShape{3, 64});
  const CodePackPlan plan = plan_codes(random_exl2(groups, 64, random), 64);
  ASSERT_EQ(plan.parts.size(), 2u);
  std::size_t chunk = 0;
  std::int32_t unit = 0;
  std::int64_t cost[2] = {0, 0};
  int paired = 0;
  for (std::size_t p = 0; p < 2; ++p) {
    const StripPart& part = plan.parts[p];
    CodePackPlan alone = plan;
    alone.chunks = part.chunks;
    alone.pieces = part.pieces;
    alone.runs = part.runs;
    alone.paired = part.paired;
    alone.group_of_unit.erase(alone.group_of_unit.begin(), alone.group_of_unit.begin() + unit);
    alone.group_of_unit.resize(static_cast<std::size_t>(part.units));
    alone.bits_of_unit.erase(alone.bits_of_unit.begin(), alone.bits_of_unit.begin() + unit);
    alone.bits_of_unit.resize(static_cast<std::size_t>(part.units));
    expect_pieces_cover_chunks(alone);
    runs_of(alone);
    if (!part.paired.pairs.empty()) {
      expect_pairs_are_chunks(alone);
      ++paired;
    }
    for (const Chunk& own : part.chunks) {
      const Chunk& whole = plan.chunks[chunk++];
      EXPECT_EQ(own.first_unit + unit, whole.first_unit);
      EXPECT_EQ(own.offset * 64 + part.first_byte, whole.offset * 64);
      EXPECT_EQ(own.group, whole.group);
      EXPECT_EQ(own.group_scale, whole.group_scale);
      cost[p] += own.units * own.bits + 8;
    }
    const std::int32_t none = std::max(plan.parts[0].units, plan.parts[1].units) * kUnitSlots;
    for (std::size_t c = 0; c < static_cast<std::size_t>(plan.in); ++c) {
      const std::int32_t place = plan.place_of_channel[c] - unit * kUnitSlots;
      const bool is_there = place >= 0 && place < part.units * kUnitSlots;
      ASSERT_EQ(part.place_of_channel[c], is_there ? place : none) << "channel " << c;
    }
    unit += part.units;
  }
  EXPECT_EQ(chunk, plan.chunks.size());
  EXPECT_EQ(paired, 1);  // the second, whose chunks are short
  EXPECT_GT(5 * cost[1], 4 * cost[0]);
  EXPECT_GT(5 * cost[0], 4 * cost[1]);
}

TEST(CudaChunks, WhichRowsHaveParts) {
  Engine random(14);
  const auto parts = [&](std::int32_t in, std::int64_t out) {
    return plan_codes(random_exl2({{4, in}}, out, random), out).parts.size();
  };
  EXPECT_EQ(parts(5120, 5088), 2u);
  EXPECT_EQ(parts(5120, 5120), 0u) << "no fewer columns than channels";
  EXPECT_EQ(parts(5088, 64), 0u) << "too short";
  EXPECT_EQ(plan_codes(random_gptq({4, 5120, 64, 128}, random), 64).parts.size(), 2u);
  Exl2Matrix twice = random_exl2({{4, 5120}}, 64, random);
  twice.perm[1] = twice.perm[0];
  EXPECT_TRUE(plan_codes(twice, 64).parts.empty()) << "a channel without a slot";
}

// Groups that no channel belongs to, as an act-order table may have them, do not widen pieces.
TEST(CudaChunks, PiecesStayNarrowAcrossEmptyGroups) {
  Engine random(10);
  const GptqMatrix matrix = random_gptq_with_empty_groups(random);
  const CodePackPlan plan = plan_codes(matrix, 32);
  expect_pieces_cover_chunks(plan);
  EXPECT_EQ(plan.pieces.size(), 3u);
}

// Whatever groups a file has.
TEST(CudaChunks, AnyGroupsAreCutRight) {
  Engine random(16);
  const auto draw = [&](int count) {
    return static_cast<std::size_t>(std::uniform_int_distribution<int>(0, count - 1)(random));
  };
  const int widths[] = {2, 3, 4, 5, 6, 8};
  int paired = 0;
  for (int i = 0; i < 300; ++i) {
    // Stretches of one width and length, as files have them, of one group or many.
    std::vector<GroupShape> groups;
    const std::size_t stretches = 1 + draw(5);
    for (std::size_t s = 0; s < stretches; ++s) {
      const GroupShape group{widths[draw(6)], 32 * static_cast<std::int32_t>(1 + draw(6))};
      groups.insert(groups.end(), 1 + draw(40), group);
    }
    const CodePackPlan plan = plan_codes(random_exl2(groups, 32, random), 32);
    expect_pieces_cover_chunks(plan);
    runs_of(plan);
    if (!plan.paired.pairs.empty()) {
      expect_pairs_are_chunks(plan);
      EXPECT_LE(plan.paired.pairs.size() * 10, plan.chunks.size() * 6);
      ++paired;
    }
    ASSERT_FALSE(HasFailure()) << "round " << i;
  }
  EXPECT_GT(paired, 30);
  EXPECT_LT(paired, 270);
}

}  // namespace
}  // namespace bl::test
