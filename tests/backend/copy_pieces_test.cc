// copy_pieces: to places and from places that lie evenly, or not, in a backend's memory and beside
// it.

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "backend/device.h"

namespace bl::test {
namespace {

constexpr std::size_t kBytes = 1 << 16;

class CopyPieces : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::int32_t> numbers(std::int32_t first) {
    std::vector<std::int32_t> words(kBytes / 4);
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = first + static_cast<std::int32_t>(i);
    }
    return words;
  }
  static std::byte* bytes_of(std::vector<std::int32_t>& words) {
    return reinterpret_cast<std::byte*>(words.data());
  }

  // Pieces {to, from, bytes} of memory on the device, and back by way of the host.
  void expect_copied(const std::vector<std::array<std::size_t, 3>>& pieces) {
    std::vector<std::int32_t> from = numbers(7);
    std::vector<std::int32_t> expected = numbers(1 << 20);
    const std::int32_t* source = device_.put(from);
    const std::int32_t* target = device_.put(expected);
    const std::vector<std::int32_t> ones(kBytes / 4, -1);
    const std::int32_t* returned = device_.put(ones);
    Buffer host = device_.backend().allocate_transfer(kBytes);
    ASSERT_NE(host.data(), nullptr);
    const auto at = [](const void* base, std::size_t offset) {
      return static_cast<std::byte*>(const_cast<void*>(base)) + offset;
    };
    std::vector<CopyPiece> there, out, back;
    for (const auto& [to, begin, bytes] : pieces) {
      std::memcpy(bytes_of(expected) + to, bytes_of(from) + begin, bytes);
      there.push_back({at(target, to), at(source, begin), bytes});
      out.push_back({at(host.data(), begin), at(target, to), bytes});
      back.push_back({at(returned, begin), at(host.data(), begin), bytes});
    }
    Backend& backend = device_.backend();
    backend.copy_pieces(there);
    backend.copy_pieces(out);
    backend.synchronize();
    for (const auto& [to, begin, bytes] : pieces) {
      EXPECT_EQ(std::memcmp(at(host.data(), begin), bytes_of(from) + begin, bytes), 0) << begin;
    }
    backend.copy_pieces(back);
    EXPECT_EQ(device_.get(target, kBytes / 4), expected);
    std::vector<std::int32_t> whole = ones;
    for (const auto& [to, begin, bytes] : pieces) {
      std::memcpy(bytes_of(whole) + begin, bytes_of(from) + begin, bytes);
    }
    EXPECT_EQ(device_.get(returned, kBytes / 4), whole);
  }

  Device device_{GetParam()};
};

TEST_P(CopyPieces, EvenlyApart) {
  std::vector<std::array<std::size_t, 3>> pieces;
  for (std::size_t i = 0; i < 16; ++i) pieces.push_back({512 + 2048 * i, 4096 * i, 1024});
  expect_copied(pieces);
}

TEST_P(CopyPieces, OneBehindTheOther) {
  std::vector<std::array<std::size_t, 3>> pieces;
  for (std::size_t i = 0; i < 16; ++i) pieces.push_back({1024 * i, 3072 * i, 1024});
  expect_copied(pieces);
}

TEST_P(CopyPieces, InAnyOrderAndOfAnySize) {
  expect_copied({{4096, 0, 1024},
                 {8192, 1024, 1024},
                 {12288, 4096, 1024},
                 {2048, 8192, 1024},
                 {16384, 16384, 64},
                 {16448, 16512, 64},
                 {16512, 16640, 128},
                 {20480, 20480, 4}});
}

TEST_P(CopyPieces, OneAndNone) {
  expect_copied({{64, 128, 32}});
  expect_copied({});
}

INSTANTIATE_TEST_SUITE_P(Backends, CopyPieces, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace bl::test
