#include "format/bit_codec.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace bl {
namespace {

// Bit by bit, as the words of the specification say.
std::uint32_t slow_code(const std::vector<std::uint32_t>& words, int index, int bits) {
  std::uint32_t code = 0;
  for (int i = 0; i < bits; ++i) {
    const int position = index * bits + i;
    code |= (words[static_cast<std::size_t>(position / 32)] >> (position % 32) & 1u) << i;
  }
  return code;
}

TEST(BitCodec, EveryWidthReadsAndWritesAnyString) {
  std::mt19937 random(7);
  for (int bits = 1; bits <= 8; ++bits) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(bits) * 3);
    for (auto& word : words) word = static_cast<std::uint32_t>(random());
    std::vector<std::uint32_t> copy(words.size(), 0);
    for (int i = 0; i < 96; ++i) {
      const std::uint32_t code = read_code(words.data(), 1, i, bits);
      ASSERT_EQ(code, slow_code(words, i, bits)) << bits << " bits, code " << i;
      write_code(copy.data(), 1, i, bits, code);
    }
    EXPECT_EQ(copy, words);
  }
}

template <int Bits>
void check_runs() {
  constexpr int kColumns = 5;
  std::mt19937 random(Bits);
  std::array<std::uint32_t, Bits * kColumns> words{};
  for (auto& word : words) word = static_cast<std::uint32_t>(random());
  std::array<std::uint32_t, Bits * kColumns> copy{};
  for (int c = 0; c < kColumns; ++c) {
    std::array<std::uint8_t, kCodesPerRun> codes{};
    BitCodec<Bits>::read_run(words.data() + c, kColumns, codes.data());
    for (int i = 0; i < kCodesPerRun; ++i) {
      ASSERT_EQ(codes[static_cast<std::size_t>(i)],
                BitCodec<Bits>::read(words.data() + c, kColumns, i));
    }
    BitCodec<Bits>::write_run(codes.data(), copy.data() + c, kColumns);
  }
  EXPECT_EQ(copy, words);
}

TEST(BitCodec, RunsOfColumnsRoundTrip) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    EXPECT_TRUE(visit_code_width(bits, []<int Bits>() { check_runs<Bits>(); }));
  }
  for (const int bits : {0, 1, 7, 9, -1}) {
    EXPECT_FALSE(visit_code_width(bits, []<int Bits>() { FAIL() << Bits; }));
  }
}

TEST(BitCodec, IsUsableAtCompileTime) {
  // docs/formats/gptq.md §14.2.
  constexpr std::uint32_t kWords[3] = {0x3aa1e33a, 0xe33aa1e3, 0xa1e33aa1};
  static_assert(read_code(kWords, 1, 10, 3) == (5 * 10 + 2) % 8);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(read_code(kWords, 1, i, 3), static_cast<std::uint32_t>((5 * i + 2) % 8)) << i;
  }
}

}  // namespace
}  // namespace bl
