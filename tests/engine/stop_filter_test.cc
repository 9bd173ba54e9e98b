#include "engine/stop_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>

#include "base/error.h"

namespace bl {
namespace {

TEST(StopFilter, HoldsBackOnlyWhatMayBecomeAStop) {
  StopFilter filter({"</end>", "\n\n"});
  EXPECT_EQ(filter.push("abc"), "abc");
  EXPECT_EQ(filter.push("d<"), "d");
  EXPECT_EQ(filter.push("/e"), "");
  EXPECT_EQ(filter.push("x"), "</ex");
  EXPECT_EQ(filter.push("\n"), "");
  EXPECT_EQ(filter.push("y\n"), "\ny");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("\nz"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, GivesHeldTextAtTheEnd) {
  StopFilter filter({"STOP"});
  EXPECT_EQ(filter.push("a STO"), "a ");
  EXPECT_EQ(filter.finish(), "STO");
}

TEST(StopFilter, TheEarliestStopWins) {
  StopFilter filter({"cd", "bcde"});
  EXPECT_EQ(filter.push("a"), "a");
  EXPECT_EQ(filter.push("b"), "");
  EXPECT_EQ(filter.push("c"), "");
  EXPECT_EQ(filter.stop_string(), "");
  EXPECT_EQ(filter.push("d"), "b");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.stop_string(), "cd");
}

TEST(StopFilter, NoStops) {
  StopFilter filter(std::vector<std::string>{});
  EXPECT_EQ(filter.push("anything"), "anything");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilter, EmptyStopIsRefused) { EXPECT_THROW(StopFilter({"a", ""}), Error); }

// Thousands of stop strings cost what a few do: a look-up or two a byte.
TEST(StopFilter, FiveThousandStopsCostNextToNothing) {
  std::mt19937 random(3);
  std::vector<std::string> stops;
  for (int i = 0; i < 5000; ++i) {
    std::string& stop = stops.emplace_back();
    for (int j = 0; j < 12; ++j) stop += static_cast<char>('a' + random() % 26);
  }
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += static_cast<char>('a' + random() % 26);
  // The best of some runs, in processor time: other programs must not decide.
  double a_token = 1e9;
  for (int run = 0; run < 3; ++run) {
    StopFilter filter(stops);
    const std::clock_t start = std::clock();
    std::string out;
    for (std::size_t i = 0; i < text.size(); i += 4) out += filter.push(text.substr(i, 4));
    const auto micros = static_cast<double>(std::clock() - start) * 1e6 / CLOCKS_PER_SEC;
    out += filter.finish();
    EXPECT_EQ(out, text);
    a_token = std::min(a_token, micros / (200'000.0 / 4));
  }
  std::printf("%.3f us a token of 4 bytes\n", a_token);
  EXPECT_LT(a_token, 10.0);  // trying each string would take a hundred
}

// However the text is cut into pieces, what comes out is the text before the first stop.
TEST(StopFilter, AnyCutGivesTheSameText) {
  std::mt19937 random(5);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "ab"[below(2)];
    std::vector<std::string> stops;
    for (std::size_t i = 0; i < 1 + below(3); ++i) {
      std::string stop;
      for (std::size_t j = 0; j < 2 + below(6); ++j) stop += "ab"[below(2)];
      stops.push_back(stop);
    }
    StopFilter filter(stops);
    std::string out;
    std::size_t taken = 0;
    while (taken < text.size() && !filter.stopped()) {
      const std::size_t piece = std::min(text.size() - taken, 1 + below(4));
      // One character at a time decides which stop completes first.
      for (std::size_t i = 0; i < piece && !filter.stopped(); ++i) {
        out += filter.push(text.substr(taken++, 1));
      }
    }
    if (!filter.stopped()) out += filter.finish();

    std::size_t end = text.size();
    std::size_t completed_at = text.size() + 1;
    for (const std::string& stop : stops) {
      const std::size_t at = text.find(stop);
      if (at == text.npos) continue;
      const std::size_t completed = at + stop.size();
      if (completed < completed_at || (completed == completed_at && at < end)) {
        completed_at = completed;
        end = at;
      }
    }
    EXPECT_EQ(out, text.substr(0, end)) << text;
    EXPECT_EQ(filter.stopped(), completed_at <= text.size());
  }
}

}  // namespace
}  // namespace bl
