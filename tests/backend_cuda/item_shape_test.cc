// How the kernels of experts divide their work among the warps of persistent CTAs, and their shared
// memory.

#include "backend/cuda/moe/item_shape.h"

#include <gtest/gtest.h>

#include <random>

#include "backend/cuda/moe/own_code_rooms.h"

namespace bl::test {
namespace {

using namespace cuda;

constexpr int kMultiprocessors = 132;

TEST(ItemShape, FitsTheCta) {
  std::mt19937 random(1);
  const auto up_to = [&](int most) {
    return 1 + static_cast<int>(random() % static_cast<unsigned>(most));
  };
  for (int i = 0; i < 2000; ++i) {
    ItemWork work;
    work.walks = up_to(10);
    work.k_steps = up_to(600);
    work.k_blocks = up_to(work.k_steps);
    work.rows = up_to(600);
    work.n_tiles = up_to(2000);
    const bool wide = random() % 2 == 0;
    const ItemShape shape = choose_item_shape(work, kMultiprocessors, wide);
    ASSERT_GE(shape.parts(), 1);
    ASSERT_LE(shape.parts() * shape.groups, kConsumerWarps);
    ASSERT_LE(shape.n_tiles(), 8);  // the producer warp has lanes for so many
    ASSERT_TRUE(wide || shape.warp_n_tiles == 1);
  }
}

TEST(ItemShape, FewNTilesAreSpreadOverAllMultiprocessors) {
  const ItemWork down{.walks = 8, .k_steps = 24, .k_blocks = 8, .rows = 1, .n_tiles = 128};
  EXPECT_EQ(choose_item_shape(down, kMultiprocessors, true).n_tiles(), 1);
}

TEST(ItemShape, ShortKIsNotSharedByManyWarps) {
  const ItemWork down{.walks = 1, .k_steps = 24, .k_blocks = 8, .rows = 128, .n_tiles = 128};
  EXPECT_LE(choose_item_shape(down, kMultiprocessors, true).parts(), 3);
}

// 227 KB a CTA, as 9.0 has, and 99 KB, as 12.0 has.
TEST(OwnCodeRooms, HoldAKBlockOrAreNotPlanned) {
  for (const std::size_t shared : {std::size_t{232448}, std::size_t{101376}}) {
    for (const int matrices : {1, 2}) {
      for (const int n_tiles : {1, 3}) {
        const auto layout = lay_out_rooms(shared, matrices, n_tiles);
        EXPECT_EQ(layout.has_value(), n_tiles == 1 || shared > 200000) << shared << " " << n_tiles;
        if (!layout) continue;
        EXPECT_GE(layout->room_bytes, n_tiles * kMostKBlockBytes);
        EXPECT_GE(layout->rooms_at, kConsumerWarps * matrices * n_tiles * 64);
        EXPECT_LE(layout->rooms_at + kConsumerWarps * layout->room_bytes + kReservedRoomBytes,
                  static_cast<int>(shared));
      }
    }
  }
}

}  // namespace
}  // namespace bl::test
