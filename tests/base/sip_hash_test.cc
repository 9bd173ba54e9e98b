#include "base/sip_hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace bl {
namespace {

// Key 00 01 … 0f, input 00 01 02 …: the vectors published with the reference code.
constexpr std::uint64_t kKey0 = 0x0706050403020100u;
constexpr std::uint64_t kKey1 = 0x0f0e0d0c0b0a0908u;

std::vector<std::byte> counting(std::size_t count) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

TEST(SipHash, PublishedVectors) {
  SipHash empty(kKey0, kKey1);
  EXPECT_EQ(empty.finish(), (Hash128{0xe6a825ba047f81a3u, 0x930255c71472f66du}));
  SipHash one(kKey0, kKey1);
  one.update(counting(1));
  EXPECT_EQ(one.finish(), (Hash128{0x44af996bd8c187dau, 0x45fc229b11597634u}));
}

TEST(SipHash, PiecesAreTheWhole) {
  const std::vector<std::byte> bytes = counting(100);
  SipHash whole;
  whole.update(bytes);
  for (std::size_t first = 0; first <= 20; ++first) {
    for (std::size_t second = 0; second <= 20; ++second) {
      SipHash pieces;
      pieces.update(std::span(bytes).first(first));
      pieces.update(std::span(bytes).subspan(first, second));
      pieces.update(std::span(bytes).subspan(first + second));
      ASSERT_EQ(pieces.finish(), whole.finish());
    }
  }
  SipHash longer;
  longer.update(bytes);
  longer.update(std::string_view("\0", 1));
  EXPECT_NE(longer.finish(), whole.finish());
}

TEST(SipHash, Hex) { EXPECT_EQ((Hash128{1, 0xab}).hex(), "00000000000000ab0000000000000001"); }

}  // namespace
}  // namespace bl
