// The event that says that a choice has been admitted.
#include <utility>
#include <vector>

#include "core_test.h"

namespace bl {
namespace {

class StartedEvents : public test::CoreTest {
 protected:
  // Steps until all is over, reading after each: for each choice of `asked` the number of the event
  // and what it says, wherever it is said.
  using Told = std::vector<std::pair<std::size_t, Admission>>;
  std::vector<Told> told_by(Asked& asked, int most_steps) {
    std::vector<Told> told(asked.ids.size());
    std::vector<std::size_t> events(asked.ids.size(), 0);
    for (int i = 0; i < most_steps && core_->requests() > 0; ++i) {
      step();
      while (const auto event = asked.open->stream->next(EngineClock::now())) {
        const auto choice = static_cast<std::size_t>(event->choice);
        if (event->started) told[choice].emplace_back(events[choice], *event->started);
        ++events[choice];
        asked.answers[choice].add(*event);
      }
      for (Asked& other : asked_) {
        if (&other != &asked) read(other);
      }
    }
    EXPECT_EQ(core_->requests(), 0);
    return told;
  }
};

// Choices behind the first one find its prompt; who has waited knows how long.
TEST_F(StartedEvents, EachChoiceBeginsWithOne) {
  start({}, 1);
  ask(request(text(40, 3), 30));
  step();
  Request wanted = request(text(600, 1), 20);
  wanted.sampling.n = 2;
  wanted.tell_start = true;
  Asked& asked = ask(wanted);
  const std::vector<Told> told = told_by(asked, 300);
  for (std::size_t choice = 0; choice < 2; ++choice) {
    ASSERT_EQ(told[choice].size(), 1u);
    EXPECT_EQ(told[choice][0].first, 0u);
    const Usage& usage = asked.answers[choice].usage;
    EXPECT_EQ(told[choice][0].second.queue_seconds, usage.queue_seconds);
    EXPECT_EQ(told[choice][0].second.cached_tokens, usage.cached_tokens);
    EXPECT_GT(usage.queue_seconds, 0);
    EXPECT_EQ(usage.cached_tokens, choice == 0 ? 0 : 599);
  }
}

// It comes before the prompt is computed, not with the first token.
TEST_F(StartedEvents, ItComesInTheStepOfTheAdmission) {
  start({.step_tokens = 64});
  Request wanted = request(text(600, 1), 5);
  wanted.tell_start = true;
  Asked& asked = ask(wanted);
  step();
  const auto event = asked.open->stream->next(EngineClock::now());
  ASSERT_TRUE(event && event->started);
  EXPECT_TRUE(event->ids.empty());
  run_all(100);
}

TEST_F(StartedEvents, NoneAfterPreemptionNorUnasked) {
  start({}, 1);
  Request wanted = request(text(40, 3), 100);
  wanted.tell_start = true;
  Asked& first = ask(wanted);
  for (int i = 0; i < 10; ++i) step();
  Request urgent = request(text(40, 5), 10);
  urgent.priority = 5;
  ask(urgent);
  const std::vector<Told> told = told_by(first, 500);
  EXPECT_EQ(first.answers[0].usage.preemptions, 1);
  EXPECT_EQ(told[0].size(), 1u);
  Asked& unasked = ask(request(text(40, 3), 10));
  EXPECT_TRUE(told_by(unasked, 100)[0].empty());
  EXPECT_EQ(unasked.answers[0].ids.size(), 10u);
}

// The second text of a guided answer is admitted a step after the first.
TEST_F(StartedEvents, GuidedAnswersAndTheBestOfSeveralHaveOneEach) {
  start({.step_tokens = 32, .gives_logits = true});
  Request wanted = request(text(40, 3), 10);
  wanted.tell_start = true;
  wanted.sampling.cfg_scale = 1.5;
  Asked& guided = ask(wanted);
  EXPECT_EQ(told_by(guided, 100)[0].size(), 1u);
  EXPECT_EQ(guided.answers[0].ids.size(), 10u);
  wanted.sampling.cfg_scale = 1;
  wanted.sampling.best_of = 4;
  wanted.sampling.n = 2;
  Asked& best = ask(wanted);
  const std::vector<Told> told = told_by(best, 100);
  for (std::size_t i = 0; i < told.size(); ++i) {
    ASSERT_EQ(told[i].size(), 1u);
    EXPECT_EQ(told[i].front().second.cached_tokens, best.answers[i].usage.cached_tokens);
    EXPECT_EQ(told[i].front().second.queue_seconds, best.answers[i].usage.queue_seconds);
  }
}

// Nothing has begun that ends while it waits.
TEST_F(StartedEvents, NoneForWhatIsCancelledInTheQueue) {
  start({}, 1);
  ask(request(text(40, 3), 30));
  step();
  Request wanted = request(text(40, 1), 20);
  wanted.tell_start = true;
  Asked& asked = ask(wanted);
  step();
  asked.open->stream->cancel();
  EXPECT_TRUE(told_by(asked, 100)[0].empty());
  EXPECT_EQ(asked.answers[0].reason, FinishReason::kCancelled);
}

}  // namespace
}  // namespace bl
