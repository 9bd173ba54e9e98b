#include "tensor/seeded_values.h"

#include <gtest/gtest.h>

#include <vector>

namespace bl {
namespace {

// The numbers that implementations of splitmix64 are usually held to, of this seed.
TEST(SeededValues, WordsAreSplitmix64) {
  EXPECT_EQ(seeded_word(1234567, 0), 6457827717110365317u);
  EXPECT_EQ(seeded_word(1234567, 1), 3203168211198807973u);
  EXPECT_EQ(seeded_word(1234567, 2), 9817491932198370423u);
}

// By threads as by one, and whatever the number of bytes.
TEST(SeededValues, BytesAreTheWords) {
  const SeededValues bits{.seed = 5};
  for (const std::size_t bytes : {std::size_t{2}, std::size_t{13}, (std::size_t{3} << 20) + 6}) {
    std::vector<std::byte> made(bytes + 1, std::byte{0x5a});
    make_values(bits, made.data(), bytes);
    EXPECT_EQ(made[bytes], std::byte{0x5a});
    for (std::size_t i = 0; i < bytes; i += i + 1000 < bytes ? 997 : 1) {
      ASSERT_EQ(made[i], static_cast<std::byte>(seeded_word(5, i / 8) >> 8 * (i % 8))) << i;
    }
  }
}

TEST(SeededValues, HalvesAreChosenByBytes) {
  SeededValues halves{.seed = 6, .halves = true};
  for (int i = 0; i < 256; ++i) halves.values[i] = static_cast<std::uint16_t>(1000 + i);
  std::vector<std::uint16_t> made((std::size_t{1} << 20) + 3);
  make_values(halves, reinterpret_cast<std::byte*>(made.data()), made.size() * 2);
  for (std::size_t i = 0; i < made.size(); i += i + 500 < made.size() ? 499 : 1) {
    ASSERT_EQ(made[i], 1000 + (seeded_word(6, i / 8) >> 8 * (i % 8) & 255)) << i;
  }
}

}  // namespace
}  // namespace bl
