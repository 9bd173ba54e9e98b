#include "server/live_timings.h"

#include <gtest/gtest.h>

#include <vector>

namespace bl::server {
namespace {

constexpr std::int64_t kPromptTokens = 9;

Event started(std::int32_t choice, std::int64_t cached) {
  Event event;
  event.choice = choice;
  event.started = Admission{cached, 0};
  return event;
}

Event first_token(std::int32_t choice) {
  Event event;
  event.choice = choice;
  event.prompt_done = kPromptTokens;
  event.ids = {1};
  return event;
}

// How much of the prompt was computed by each report of progress.
std::vector<std::int64_t> processed_by(const std::vector<Event>& events) {
  LiveTimings timings(kPromptTokens);
  std::vector<std::int64_t> processed;
  for (const Event& event : events) {
    timings.follow(event, [&] { processed.push_back(timings.progress()["processed"]); });
  }
  return processed;
}

TEST(LiveTimings, TellWhatWasCachedAndThenThatThePromptIsComputed) {
  EXPECT_EQ(processed_by({started(0, 4), first_token(0)}),
            (std::vector<std::int64_t>{4, kPromptTokens}));
}

TEST(LiveTimings, TellTheSameInWhateverOrderChoicesAreHeardOf) {
  const std::vector<std::int64_t> both = {0, kPromptTokens};
  EXPECT_EQ(processed_by({started(0, 0), started(1, 8), first_token(0), first_token(1)}), both);
  EXPECT_EQ(processed_by({started(0, 0), started(1, 8), first_token(1), first_token(0)}), both);
  EXPECT_EQ(processed_by({started(0, 0), first_token(0), started(1, 8), first_token(1)}), both);
}

}  // namespace
}  // namespace bl::server
