// What the host works out for the product of one token: shared memory without overlaps, entries
// that fit their places and are all of a strip, shares as kernels find them.

#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/cuda/layout/code_pack_plan.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using namespace cuda;

constexpr int kFixed = 20000;
constexpr int kAll = 227 << 10;  // bytes that a CTA can have

// Products of matrices that exist as plans alone.
struct Product {
  std::vector<CodePackPlan> plans;
  std::vector<std::span<const Piece>> pieces;
  std::vector<std::int32_t> begins;
  ProductArgs args;

  explicit Product(std::vector<CodePackPlan> of, int ctas) : plans(std::move(of)) {
    std::vector<StripCosts> costs;
    int chunks = 0;
    for (const CodePackPlan& plan : plans) {
      ProductMatrix& m = args.matrices[args.count];
      m.view.kind = plan.kind;
      m.view.strips = static_cast<std::int32_t>(plan.strips());
      m.view.strip_bytes = plan.strip_bytes();
      m.view.chunk_count = static_cast<std::int32_t>(plan.chunks.size());
      m.view.piece_count = static_cast<std::int32_t>(plan.pieces.size());
      m.view.pieces = plan.pieces.data();
      m.view.groups = plan.groups;
      m.view.units = static_cast<std::int32_t>(plan.units());
      m.piece_bytes = static_cast<std::int32_t>(plan.max_piece_bytes());
      m.piece_scale_bytes = static_cast<std::int32_t>(plan.max_piece_scale_bytes());
      m.gather = args.count++;
      m.chunks_at = chunks * static_cast<int>(sizeof(Chunk));
      chunks += m.view.chunk_count;
      pieces.emplace_back(plan.pieces);
      costs.push_back({m.view.strips, 1});
    }
    args.tokens = 1;
    begins = share_strips(costs, ctas);
  }
  StripShares shares() const {
    return {begins.data(), static_cast<int>(begins.size()) - 1, begins};
  }
  TokenLayout layout(bool ring = true) const {
    return lay_out_token(args, shares(), {.fixed = kFixed, .all = kAll, .ring = ring});
  }
  TokenPlan plan() const { return plan_token(args, shares(), layout(), pieces); }
};

std::vector<CodePackPlan> mixes(Engine& random) {
  std::vector<CodePackPlan> plans;
  const std::vector<GroupShape> small(48, {4, 32});  // as many scales as there may be
  plans.push_back(plan_codes(random_exl2(small, 64, random), 64));
  plans.push_back(
      plan_codes(random_exl2({{5, 64}, {5, 32}, {4, 1024}, {3, 160}, {2, 96}}, 96, random), 90));
  plans.push_back(plan_codes(random_exl2({{8, 96}, {6, 2048}, {2, 4096}}, 32, random), 32));
  return plans;
}

// What an entry takes of a strip, as the copying warp works it out.
struct Entry {
  std::uint32_t codes, scales;
  int chunks;
};
Entry entry_of(const Product& product, int matrix, int from, int to) {
  const std::span<const Piece> pieces = product.pieces[static_cast<std::size_t>(matrix)];
  const Piece& first = pieces[static_cast<std::size_t>(from)];
  const Piece& last = pieces[static_cast<std::size_t>(to)];
  const auto scale =
      static_cast<std::uint32_t>(scale_bytes(product.args.matrices[matrix].view.kind));
  const std::uint32_t begin = first.first_group * scale / 16 * 16;
  const std::uint32_t end = ((last.first_group + last.groups) * scale + 15) / 16 * 16;
  return {(last.offset + last.size - first.offset) * 64, end - begin,
          last.first_chunk + last.chunks - first.first_chunk};
}

void check_entries(const Product& product, const TokenLayout& layout, const TokenPlan& plan,
                   int matrix) {
  const TokenSource& source = plan.sources[matrix];
  const int pieces = static_cast<int>(product.pieces[static_cast<std::size_t>(matrix)].size());
  ASSERT_EQ(source.pieces, pieces);
  for (int strips = 1; strips <= kEntryStrips; ++strips) {
    const int joined = source.joined[strips - 1];
    const int entries = source.entries[strips - 1];
    ASSERT_GT(joined, 0);
    EXPECT_GE(entries * joined, pieces);
    EXPECT_LT((entries - 1) * joined, pieces);
    for (int i = 0; i < entries; ++i) {
      const Entry entry =
          entry_of(product, matrix, i * joined, std::min((i + 1) * joined, pieces) - 1);
      if (i == 0) {
        EXPECT_EQ(source.first_codes[strips - 1], entry.codes);
      }
      EXPECT_LE(entry.chunks, 255);
      if (strips * joined > layout.ring.most_joined) continue;  // groups are never so many
      EXPECT_LE(static_cast<int>(entry.scales) * strips, layout.ring.scale_room);
      EXPECT_LE(static_cast<int>(entry.codes) * strips,
                layout.ring.slot_bytes - layout.ring.scale_room);
    }
  }
}

TEST(TokenPlan, EntriesFitTheirPlaces) {
  Engine random(5);
  for (const int ctas : {3, 8, 132}) {
    const Product product(mixes(random), ctas);
    const TokenLayout layout = product.layout();
    const TokenPlan plan = product.plan();
    EXPECT_GE(layout.ring.slots, 1);
    for (int m = 0; m < product.args.count; ++m) check_entries(product, layout, plan, m);
  }
}

TEST(TokenPlan, NothingOverlaps) {
  Engine random(6);
  Product product(mixes(random), 132);
  for (const int tokens : {1, 2}) {
    product.args.tokens = tokens;
    const TokenLayout layout = product.layout();
    int units = 0;
    int chunks = 0;
    for (int m = 0; m < product.args.count; ++m) {
      const CodeMatrixView& view = product.args.matrices[m].view;
      units = std::max(units, view.units);
      chunks += view.chunk_count;
    }
    EXPECT_EQ(layout.worth_at, units * kInputUnitBytes);
    EXPECT_EQ(layout.gather_bytes, layout.worth_at + units * kWorthBytes);
    // A strip a share, so none of two matrices.
    EXPECT_EQ(layout.token_stride, layout.gather_bytes);
    EXPECT_GE(layout.tables_at, kFixed + tokens * layout.token_stride);
    EXPECT_GE(layout.ring_at, layout.tables_at + chunks * static_cast<int>(sizeof(Chunk)));
    EXPECT_EQ(layout.bytes, layout.ring_at + RingShape::kHeadersBytes +
                                layout.ring.slots * layout.ring.slot_bytes);
    EXPECT_LE(layout.bytes, kAll);
    EXPECT_EQ(
        (layout.tables_at | layout.ring_at | layout.ring.scale_room | layout.ring.slot_bytes) % 128,
        0);
    const TokenLayout without = product.layout(false);
    EXPECT_EQ(without.bytes, without.tables_at);
    EXPECT_EQ(without.ring.slots, 0);
  }
}

TEST(TokenPlan, ThereIsRoomForTheGathersOfAShare) {
  Engine random(6);
  Product product(mixes(random), 3);  // 4, 6 and 2 strips: the last share has the last two's
  EXPECT_EQ(product.layout().token_stride, 2 * product.layout().gather_bytes);
  EXPECT_EQ(Product(mixes(random), 1).layout().token_stride, 3 * product.layout().gather_bytes);
  product.args.matrices[2].gather = 1;
  EXPECT_EQ(product.layout().token_stride, product.layout().gather_bytes);
  product.args.matrices[1].gather = 2;
  product.args.matrices[2].gather = 0;
  EXPECT_EQ(product.layout().token_stride, 3 * product.layout().gather_bytes);
  product.args.gated = true;
  product.args.matrices[1].gather = 1;
  EXPECT_EQ(product.layout().token_stride, 2 * product.layout().gather_bytes);
}

TEST(TokenPlan, PairsHaveTablesOfTheirOwn) {
  Engine random(10);
  std::vector<CodePackPlan> plans;
  plans.push_back(plan_codes(random_exl2(std::vector<GroupShape>(45, {3, 64}), 64, random), 64));
  Product product(std::move(plans), 132);
  EXPECT_EQ(product.plan().sources[0].chunk_bytes, sizeof(Chunk));
  const PairTables& paired = product.plans[0].paired;
  CodeMatrixView& view = product.args.matrices[0].view;
  view.pair_count = static_cast<std::int32_t>(paired.pairs.size());
  product.pieces[0] = paired.pieces;
  product.args.pairs = true;
  const TokenLayout layout = product.layout();
  EXPECT_EQ(view.pair_count, 23);
  EXPECT_GE(layout.ring_at - layout.tables_at, 23 * 80);
  EXPECT_EQ(layout.gather_bytes, view.units * (kInputUnitBytes + kWorthBytes));
  const TokenPlan plan = product.plan();
  EXPECT_EQ(plan.sources[0].chunk_bytes, sizeof(ChunkPair));
  check_entries(product, layout, plan, 0);
}

TEST(TokenPlan, TooMuchIsMoreThanThereIs) {
  Engine random(7);
  std::vector<CodePackPlan> plans;
  plans.push_back(plan_codes(random_exl2({{4, 1 << 16}}, 32, random), 32));
  EXPECT_GT(Product(std::move(plans), 132).layout().bytes, kAll);
}

TEST(TokenPlan, StripsFindTheirMatrix) {
  Engine random(8);
  Product product(mixes(random), 132);  // 4, 6 and 2 strips
  TokenPlan plan = product.plan();
  int strip = 0;
  for (int m = 0; m < product.args.count; ++m) {
    for (int i = 0; i < product.args.matrices[m].view.strips; ++i, ++strip) {
      EXPECT_EQ(plan.matrix_of(strip), m) << strip;
    }
  }
  EXPECT_EQ(strip, 12);
  // Gated: strips count once.
  std::vector<CodePackPlan> twins;
  for (int i = 0; i < 2; ++i) {
    twins.push_back(plan_codes(random_exl2({{4, 256}}, 64, random), 64));
  }
  Product gated(std::move(twins), 132);
  gated.args.gated = true;
  plan = gated.plan();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(plan.matrix_of(i), 0);
}

TEST(TokenPlan, WhatHasNoRoomStaysWhereItIs) {
  Engine random(9);
  std::vector<CodePackPlan> plans;
  plans.push_back(plan_codes(random_exl2({{2, 128}}, 16 * 200, random), 16 * 200));
  plans.push_back(plan_codes(random_exl2({{4, 32 * 32 * 17}}, 16, random), 16));
  const Product few(plans, ShareBegins::kMost);
  const Product many(std::move(plans), ShareBegins::kMost + 1);
  TokenPlan plan = few.plan();
  EXPECT_EQ(plan.begins.far, nullptr);
  EXPECT_TRUE(std::equal(few.begins.begin(), few.begins.end(), plan.begins.near));
  EXPECT_EQ(plan.sources[0].far_pieces, nullptr);
  EXPECT_EQ(plan.pieces[0][0].size, few.pieces[0][0].size);
  ASSERT_GT(few.pieces[1].size(), std::size_t{TokenPlan::kMostPieces});
  EXPECT_EQ(plan.sources[1].far_pieces, few.args.matrices[1].view.pieces);
  plan = many.plan();
  EXPECT_EQ(plan.begins.far, many.begins.data());
}

}  // namespace
}  // namespace bl::test
