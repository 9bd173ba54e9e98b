#include "engine/token_counts.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace bl::test {
namespace {

std::vector<TokenCounts::Count> counted(std::span<const std::int32_t> text, std::int64_t range) {
  std::map<std::int32_t, std::int32_t> counts;
  const auto size = static_cast<std::int64_t>(text.size());
  for (std::int64_t i = range < 0 ? 0 : std::max<std::int64_t>(0, size - range); i < size; ++i) {
    ++counts[text[static_cast<std::size_t>(i)]];
  }
  std::vector<TokenCounts::Count> all;
  for (const auto& [id, count] : counts) all.push_back({id, count});
  return all;
}

std::vector<TokenCounts::Count> all_of(std::span<const TokenCounts::Count> counts) {
  return {counts.begin(), counts.end()};
}

// Texts grow, are cut, go on in another way, are replaced; windows slide and change.
TEST(TokenCounts, AreThoseOfCountingAnew) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    TokenCounts counts;
    std::vector<std::int32_t> text;
    const std::uint32_t kinds = round % 2 == 0 ? 5 : 2000;
    const std::int64_t ranges[] = {-1, 0, 1, 7, 300, 1000};
    std::int64_t range = ranges[random() % 6];
    for (int step = 0; step < 100; ++step) {
      const std::uint64_t what = random() % 12;
      if (what == 0) text.resize(random() % (text.size() + 1));
      if (what == 1 && !text.empty()) text[random() % text.size()] = -1;
      if (what == 2) range = ranges[random() % 6];
      const std::uint64_t more = what == 3 ? random() % 600 : random() % 4;
      for (std::uint64_t i = 0; i < more; ++i) {
        text.push_back(static_cast<std::int32_t>(random() % kinds));
      }
      ASSERT_EQ(all_of(counts.of(text, range)), counted(text, range))
          << "round " << round << " step " << step << " range " << range;
    }
  }
}

}  // namespace
}  // namespace bl::test
