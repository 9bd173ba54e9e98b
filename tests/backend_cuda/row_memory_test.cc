// Where kept rows lie: on the card while there is room, then in host memory that is used again.

#include "backend/cuda/fitting/row_memory.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "base/error.h"

namespace bl::cuda {
namespace {

class RowMemoryTest : public testing::Test {
 protected:
  // A source that counts what it hands out, up to `limit` calls.
  static std::shared_ptr<std::byte> make(std::size_t bytes, int& calls, int limit) {
    if (calls >= limit) return nullptr;
    ++calls;
    return std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>());
  }

  int card_calls_ = 0, host_calls_ = 0;
  int card_limit_ = 100, host_limit_ = 100;
  RowMemory memory_{[this](std::size_t bytes) { return make(bytes, card_calls_, card_limit_); },
                    [this](std::size_t bytes) { return make(bytes, host_calls_, host_limit_); }};
};

TEST_F(RowMemoryTest, IsOfTheHostUntilThereIsRoom) {
  const Buffer first = memory_.take(100);
  EXPECT_EQ(card_calls_, 0);
  EXPECT_EQ(host_calls_, 1);
  memory_.set_room(250);
  const Buffer second = memory_.take(100), third = memory_.take(150), fourth = memory_.take(1);
  EXPECT_EQ(card_calls_, 2);
  EXPECT_EQ(host_calls_, 2);
  EXPECT_EQ(memory_.host_bytes(), 101u);
}

TEST_F(RowMemoryTest, GivesRoomOfTheCardBack) {
  memory_.set_room(100);
  { const Buffer first = memory_.take(80); }
  const Buffer second = memory_.take(100);
  EXPECT_EQ(card_calls_, 2);
  EXPECT_EQ(host_calls_, 0);
}

TEST_F(RowMemoryTest, UsesHostMemoryAgainForTheSameSize) {
  const void* first = nullptr;
  {
    const Buffer rows = memory_.take(100);
    first = rows.data();
  }
  const Buffer other = memory_.take(60), same = memory_.take(100);
  EXPECT_EQ(same.data(), first);
  EXPECT_NE(other.data(), first);
  EXPECT_EQ(host_calls_, 2);
  EXPECT_EQ(memory_.host_bytes(), 160u);
}

TEST_F(RowMemoryTest, TakesTheHostsWhereTheCardHasNone) {
  card_limit_ = 1;
  memory_.set_room(1000);
  const Buffer first = memory_.take(100), second = memory_.take(100);
  EXPECT_EQ(host_calls_, 1);
}

TEST_F(RowMemoryTest, SaysThatTheHostHasNone) {
  host_limit_ = 0;
  EXPECT_THROW(memory_.take(100), Error);
}

// Rows may outlive the object that they came from.
TEST_F(RowMemoryTest, RowsMayGoLast) {
  Buffer rows;
  {
    RowMemory memory([this](std::size_t bytes) { return make(bytes, card_calls_, card_limit_); },
                     [this](std::size_t bytes) { return make(bytes, host_calls_, host_limit_); });
    rows = memory.take(100);
  }
  static_cast<std::byte*>(rows.data())[99] = std::byte{1};
}

}  // namespace
}  // namespace bl::cuda
