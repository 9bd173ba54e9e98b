#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ops/kv_layout.h"

namespace bl {
namespace {

SequenceState running(std::int64_t length, std::int64_t cached) {
  SequenceState s;
  s.length = length;
  s.cached = cached;
  s.pages = static_cast<std::int32_t>((cached + kPageSlots - 1) / kPageSlots);
  s.own_pages = s.pages;
  s.running = true;
  return s;
}

SequenceState waiting(std::int64_t length, double rank) {
  SequenceState s;
  s.length = length;
  s.rank = rank;
  return s;
}

constexpr SchedulerLimits kLimits{.step_tokens = 100, .logit_rows = 8, .running = 8};

std::vector<std::pair<int, int>> work_of(const StepPlan& plan) {
  std::vector<std::pair<int, int>> work;
  for (const StepWork& w : plan.work) work.emplace_back(w.sequence, static_cast<int>(w.tokens));
  return work;
}
using Work = std::vector<std::pair<int, int>>;

TEST(PlanStep, DecodingComesFirstAndPromptsTakeTheRest) {
  SchedulerState state;
  state.available_pages = 50;
  state.sequences = {running(500, 0), running(20, 19), running(300, 250), running(40, 39)};
  EXPECT_EQ(work_of(plan_step(state, kLimits)), (Work{{1, 1}, {3, 1}, {0, 98}}));
  state.sequences[0].rank = 2;
  state.sequences[2].rank = 1;
  EXPECT_EQ(work_of(plan_step(state, kLimits)), (Work{{1, 1}, {3, 1}, {2, 50}, {0, 48}}));
}

TEST(PlanStep, BlockedAndWaitingSequencesGetNothing) {
  SchedulerState state;
  state.available_pages = 50;
  state.sequences = {running(20, 19), waiting(20, 0), running(30, 29)};
  state.sequences[0].blocked = true;
  EXPECT_EQ(work_of(plan_step(state, kLimits)), (Work{{2, 1}}));
}

TEST(PlanStep, RowsOfAPromptWhoseLogitsAreAllWanted) {
  SchedulerState state;
  state.available_pages = 50;
  state.sequences = {running(500, 0), running(20, 19), running(8, 0)};
  state.sequences[0].every_row = true;
  // Eight rows in all: one decodes, seven for the first prompt, none for the end of the other.
  EXPECT_EQ(work_of(plan_step(state, kLimits)), (Work{{1, 1}, {0, 7}, {2, 7}}));
}

// Guesses behind the two texts of a guided answer are as many for both.
TEST(PlanStep, GuessesOfAPairAreForBothOrNeither) {
  SchedulerState state;
  state.available_pages = 50;
  state.sequences = {running(20, 19), running(40, 39), running(30, 29)};
  const auto drafts_of = [&](std::int64_t rows) {
    std::vector<std::int64_t> drafts;
    const SchedulerLimits limits{.step_tokens = 100, .logit_rows = rows, .running = 3};
    for (const StepWork& work : plan_step(state, limits).work) drafts.push_back(work.drafts);
    return drafts;
  };
  using Drafts = std::vector<std::int64_t>;
  state.sequences[0].drafts = 3;
  state.sequences[0].pairs_drafts = true;
  state.sequences[2].drafts = 2;
  EXPECT_EQ(drafts_of(20), (Drafts{3, 3, 2}));
  EXPECT_EQ(drafts_of(8), (Drafts{2, 2, 1}));
  EXPECT_EQ(drafts_of(4), (Drafts{0, 0, 1}));
  // The second one stands still, or reads.
  state.sequences[1].blocked = true;
  EXPECT_EQ(drafts_of(20), (Drafts{0, 2}));
  state.sequences[1].blocked = false;
  state.sequences[1].cached = 30;
  EXPECT_EQ(drafts_of(20), (Drafts{0, 2, 0}));
  // The page of one of them ends two tokens on, and there is no other.
  state.sequences[1] = running(254, 253);
  state.available_pages = 3;
  EXPECT_EQ(drafts_of(20), (Drafts{2, 2, 2}));
  state.available_pages = 4;
  EXPECT_EQ(drafts_of(20), (Drafts{3, 3, 2}));
}

TEST(PlanStep, PagesComeFromTheWorstRank) {
  SchedulerState state;
  state.available_pages = 0;
  state.sequences = {running(257, 256), running(100, 99), running(513, 512)};
  for (std::size_t i = 0; i < 3; ++i) state.sequences[i].rank = static_cast<double>(i);
  const StepPlan plan = plan_step(state, kLimits);
  EXPECT_EQ(plan.preempted, std::vector<std::int32_t>{2});
  EXPECT_EQ(work_of(plan), (Work{{0, 1}, {1, 1}}));
  // The worst itself stands still.
  state.sequences[0].rank = 3;
  state.sequences.pop_back();
  const StepPlan other = plan_step(state, kLimits);
  EXPECT_TRUE(other.preempted.empty());
  EXPECT_EQ(work_of(other), (Work{{1, 1}}));
}

TEST(PlanStep, APromptTakesThePagesThatThereAre) {
  SchedulerState state;
  state.available_pages = 1;
  state.sequences = {running(1000, 250), running(20, 19)};
  SchedulerLimits limits = kLimits;
  limits.step_tokens = 600;
  // Six slots of its own page and one more page; nobody gives way for more.
  EXPECT_EQ(work_of(plan_step(state, limits)), (Work{{1, 1}, {0, 262}}));
}

TEST(PlanAdmission, InOrderWhileThereIsRoom) {
  SchedulerState state;
  state.available_pages = 10;
  state.sequences = {waiting(50, 2), waiting(40, 1), waiting(400, 3), waiting(10, 4)};
  const AdmissionPlan plan = plan_admission(state, kLimits);
  // The third takes the whole budget of a step; the fourth comes in the next one.
  EXPECT_EQ(plan.admitted, (std::vector<std::int32_t>{1, 0, 2}));
  EXPECT_TRUE(plan.preempted.empty());
}

TEST(PlanAdmission, OneThatDoesNotFitIsPassedOverOnlySoOften) {
  SchedulerState state;
  state.available_pages = 4;
  state.sequences = {waiting(2000, 1), waiting(40, 2)};
  AdmissionPlan plan = plan_admission(state, kLimits);
  EXPECT_EQ(plan.admitted, std::vector<std::int32_t>{1});
  EXPECT_EQ(plan.passed_over, std::vector<std::int32_t>{0});
  state.sequences[0].passed_over = state.sequences[0].max_skips;
  plan = plan_admission(state, kLimits);
  EXPECT_TRUE(plan.admitted.empty());
  // Each as often as it says itself.
  state.sequences[0].max_skips = 10;
  state.sequences.insert(state.sequences.begin() + 1, waiting(2000, 1.5));
  plan = plan_admission(state, kLimits);
  EXPECT_EQ(plan.admitted, std::vector<std::int32_t>{2});
  EXPECT_EQ(plan.passed_over, (std::vector<std::int32_t>{0, 1}));
  state.sequences[1].max_skips = 0;
  EXPECT_TRUE(plan_admission(state, kLimits).admitted.empty());
}

TEST(PlanAdmission, BetterRankTakesTheSlotOfTheWorst) {
  SchedulerState state;
  state.available_pages = 10;
  SchedulerLimits limits = kLimits;
  limits.running = 2;
  state.sequences = {running(20, 19), running(20, 19), waiting(10, -1), waiting(10, 7)};
  state.sequences[0].rank = 1;
  state.sequences[1].rank = 5;
  const AdmissionPlan plan = plan_admission(state, limits);
  EXPECT_EQ(plan.preempted, std::vector<std::int32_t>{1});
  EXPECT_EQ(plan.admitted, std::vector<std::int32_t>{2});
}

TEST(PlanAdmission, TheLastBlockedHolderGivesWayToOneThatNeedsAllPages) {
  SchedulerState state;
  state.available_pages = 1;
  SchedulerLimits limits = kLimits;
  limits.spare_pages = 2;
  state.sequences = {running(kPageSlots * 9, kPageSlots * 9), waiting(kPageSlots * 10, 1)};
  EXPECT_TRUE(plan_admission(state, limits).admitted.empty());
  state.sequences[0].blocked = true;
  const AdmissionPlan plan = plan_admission(state, limits);
  EXPECT_EQ(plan.preempted, std::vector<std::int32_t>{0});
  EXPECT_EQ(plan.admitted, std::vector<std::int32_t>{1});
  // Two of whom one must stay: the spare pages are for that one.
  state.sequences.push_back(running(20, 19));
  EXPECT_TRUE(plan_admission(state, limits).admitted.empty());
}

TEST(PlanAdmission, SharedPagesCostNothing) {
  SchedulerState state;
  state.available_pages = 1;
  state.sequences = {running(20, 19), waiting(1000, 1)};
  state.sequences[1].shared_pages = 2;
  EXPECT_EQ(plan_admission(state, kLimits).admitted.size(), 0u);
  state.sequences[1].shared_pages = 3;
  EXPECT_EQ(plan_admission(state, kLimits).admitted.size(), 1u);
}

// A world of nothing but plans: sequences arrive, grow by a token whenever they are whole, and end.
class World {
 public:
  World(unsigned seed, SchedulerLimits limits, std::int32_t pages)
      : random_(seed), limits_(limits), pages_(pages) {}

  void arrive() {
    SequenceState s = waiting(1 + below(std::int64_t{pages_} * kPageSlots / 2), 0);
    s.rank = static_cast<double>(now_) - 20.0 * static_cast<double>(below(3));
    s.max_skips = static_cast<std::int32_t>(below(7));
    state_.sequences.push_back(s);
    ends_.push_back(s.length + 1 + below(200));
    ends_.back() = std::min(ends_.back(), std::int64_t{pages_} * kPageSlots);
    since_.push_back(now_);
  }

  void turn() {
    ++now_;
    for (SequenceState& s : state_.sequences) {
      s.blocked = below(50) == 0;
    }
    state_.available_pages = pages_ - held();
    const AdmissionPlan admission = plan_admission(state_, limits_);
    for (const std::int32_t i : admission.preempted) preempt(i);
    for (const std::int32_t i : admission.admitted) {
      ASSERT_FALSE(at(i).running);
      ASSERT_FALSE(at(i).blocked);
      at(i).running = true;
    }
    for (const std::int32_t i : admission.passed_over) {
      ASSERT_LE(++at(i).passed_over, at(i).max_skips);
    }
    state_.available_pages = pages_ - held();
    const StepPlan plan = plan_step(state_, limits_);
    for (const std::int32_t i : plan.preempted) preempt(i);
    std::int64_t tokens = 0;
    std::int64_t rows = 0;
    for (const StepWork& work : plan.work) {
      SequenceState& s = at(work.sequence);
      ASSERT_TRUE(s.running && !s.blocked);
      ASSERT_GT(work.tokens, 0);
      ASSERT_LE(work.tokens, s.missing());
      tokens += work.tokens;
      s.cached += work.tokens;
      s.pages = static_cast<std::int32_t>((s.cached + kPageSlots - 1) / kPageSlots);
      s.own_pages = s.pages;
      if (s.cached == s.length) {
        ++rows;
        ++s.length;
      }
    }
    ASSERT_LE(tokens, limits_.step_tokens);
    ASSERT_LE(rows, limits_.logit_rows);
    ASSERT_LE(held(), pages_);
    std::int64_t running = 0;
    for (const SequenceState& s : state_.sequences) running += s.running ? 1 : 0;
    ASSERT_LE(running, limits_.running);
    leave();
  }

  std::size_t open() const { return state_.sequences.size(); }
  std::int64_t longest_stay() const { return longest_stay_; }
  std::int64_t now() const { return now_; }

 private:
  SequenceState& at(std::int32_t i) { return state_.sequences[static_cast<std::size_t>(i)]; }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  std::int32_t held() const {
    std::int32_t held = 0;
    for (const SequenceState& s : state_.sequences) held += s.pages;
    return held;
  }
  void preempt(std::int32_t i) {
    ASSERT_TRUE(at(i).running);
    at(i).running = false;
    at(i).cached = 0;
    at(i).pages = at(i).own_pages = 0;
    at(i).passed_over = 0;
  }
  void leave() {
    for (std::size_t i = state_.sequences.size(); i-- > 0;) {
      if (state_.sequences[i].length < ends_[i]) continue;
      longest_stay_ = std::max(longest_stay_, now_ - since_[i]);
      state_.sequences.erase(state_.sequences.begin() + static_cast<std::ptrdiff_t>(i));
      ends_.erase(ends_.begin() + static_cast<std::ptrdiff_t>(i));
      since_.erase(since_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  std::mt19937 random_;
  SchedulerLimits limits_;
  std::int32_t pages_;
  SchedulerState state_;
  std::vector<std::int64_t> ends_;
  std::vector<std::int64_t> since_;
  std::int64_t now_ = 0;
  std::int64_t longest_stay_ = 0;
};

TEST(Scheduler, RandomTrafficKeepsTheLimitsAndStarvesNobody) {
  std::int64_t turns = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    SchedulerLimits limits;
    limits.step_tokens = 32 + static_cast<std::int64_t>(random() % 500);
    limits.running = 1 + static_cast<std::int64_t>(random() % 16);
    limits.logit_rows = limits.running;
    limits.spare_pages = static_cast<std::int32_t>(random() % 3);
    World world(seed, limits, static_cast<std::int32_t>(4 + random() % 20));
    // More arrivals than can be served, for a while; then nothing new.
    for (int i = 0; i < 1000; ++i) {
      if (random() % 12 == 0 && world.open() < 40) world.arrive();
      world.turn();
      if (testing::Test::HasFatalFailure()) return;
    }
    for (int i = 0; i < 60000 && world.open() > 0; ++i) {
      world.turn();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(world.open(), 0u) << "seed " << seed;
    turns += world.now();
  }
  EXPECT_GT(turns, 60 * 1000);
}

}  // namespace
}  // namespace bl
