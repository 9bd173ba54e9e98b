#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace bl {
namespace {

// A machine whose steps take what a formula says.
class PolicyTest : public testing::Test {
 protected:
  template <class Seconds>
  void measure(Seconds&& seconds, std::int64_t most_rows) {
    for (std::int64_t rows = 1; rows <= most_rows; ++rows) {
      for (int i = 0; i < 8; ++i) policy_.measured_step(rows, seconds(rows));
    }
  }
  // A sequence whose guesses are right with chance `rate`.
  void teach(DraftHabit& habit, double rate, int times = 60) {
    std::mt19937 random(1);
    for (int i = 0; i < times; ++i) {
      std::int64_t right = 0;
      while (right < 4 && std::uniform_real_distribution<>(0, 1)(random) < rate) ++right;
      policy_.measured(habit, 0, 4, right);
    }
  }
  std::int64_t plan_one(DraftHabit& habit, std::int64_t rows, std::int64_t most = 16) {
    DraftPolicy::Candidate one{.habit = &habit, .most = most};
    policy_.plan({&one, 1}, {.rows = rows, .is_free = true});
    return one.count;
  }
  DraftPolicy policy_;
};

TEST_F(PolicyTest, GuessesManyWhereRowsCostLittleAndGuessesAreRight) {
  measure([](std::int64_t rows) { return 0.01 + 0.0002 * static_cast<double>(rows); }, 20);
  DraftHabit good;
  teach(good, 0.97);
  EXPECT_GE(plan_one(good, 1), 10);
  EXPECT_EQ(plan_one(good, 1, 3), 3);
  DraftHabit fair;
  teach(fair, 0.5);
  EXPECT_GE(plan_one(fair, 1), 2);
  EXPECT_LT(plan_one(fair, 1), plan_one(good, 1));
  DraftHabit bad;
  teach(bad, 0.0);
  EXPECT_EQ(plan_one(bad, 1), 0);
}

TEST_F(PolicyTest, GuessesNothingWhereEachRowCostsAStep) {
  measure([](std::int64_t rows) { return 0.01 * static_cast<double>(rows); }, 20);
  DraftHabit good;
  teach(good, 0.97);
  EXPECT_EQ(plan_one(good, 1), 0);
}

// The number that a reader of the formula would choose, for one sequence.
TEST_F(PolicyTest, TakesTheBestOfAllCounts) {
  for (const double row : {0.001, 0.002, 0.003, 0.006}) {
    for (const double rate : {0.3, 0.6, 0.8, 0.9}) {
      policy_ = DraftPolicy();
      const auto seconds = [&](std::int64_t rows) {
        return 0.01 + row * static_cast<double>(rows - 1);
      };
      measure(seconds, 20);
      DraftHabit habit;
      teach(habit, rate, 2000);
      const double known = policy_.rate(habit, 0);
      double best = 0;
      double at_none = 0;
      double chosen = 0;
      const std::int64_t count = plan_one(habit, 1);
      for (std::int64_t k = 0; k <= 16; ++k) {
        const double tokens = (1 - std::pow(known, static_cast<double>(k + 1))) / (1 - known);
        const double per_second = tokens / seconds(k + 1);
        best = std::max(best, per_second);
        if (k == 0) at_none = per_second;
        if (k == count) chosen = per_second;
      }
      if (best > 1.03 * at_none) {
        EXPECT_NEAR(chosen, best, 1e-9 * best) << row << " " << rate;
      } else {
        EXPECT_EQ(count, 0);
      }
    }
  }
}

// A guess of a guided answer takes two rows and gives one token.
TEST_F(PolicyTest, GuessesOfTwoRowsMustBeWorthBoth) {
  for (const double row : {0.0005, 0.001, 0.002, 0.004}) {
    SCOPED_TRACE(row);
    policy_ = DraftPolicy();
    const auto seconds = [&](std::int64_t rows) { return 0.01 + row * static_cast<double>(rows); };
    measure(seconds, 30);
    DraftHabit habit;
    teach(habit, 0.8, 2000);
    const double known = policy_.rate(habit, 0);
    const auto per_second = [&](std::int64_t guesses) {
      const double tokens = (1 - std::pow(known, static_cast<double>(guesses + 1))) / (1 - known);
      return tokens / seconds(2 + 2 * guesses);
    };
    double best = 0;
    for (std::int64_t k = 0; k <= 12; ++k) best = std::max(best, per_second(k));
    DraftPolicy::Candidate pair{.habit = &habit, .most = 12, .rows = 2};
    policy_.plan({&pair, 1}, {.rows = 2, .guides = 1, .is_free = true});
    EXPECT_GT(pair.count, 0);
    EXPECT_NEAR(per_second(pair.count), best, 1e-9 * best);
    // Beside one that gives as much for one row, it comes second.
    std::vector<DraftPolicy::Candidate> both{{.habit = &habit, .most = 12, .rows = 2},
                                             {.habit = &habit, .most = 12}};
    policy_.plan(both, {.rows = 3, .guides = 1, .is_free = true});
    EXPECT_GT(both[1].count, both[0].count);
  }
}

TEST_F(PolicyTest, LikelyGuessesOfManyComeFirst) {
  // Up to 12 rows are nearly free, as where weights are read once for all of them.
  measure(
      [](std::int64_t rows) {
        return rows <= 12 ? 0.01 : 0.01 * std::ceil(static_cast<double>(rows) / 4);
      },
      60);
  DraftHabit good;
  teach(good, 0.95);
  policy_.measured_step(2, 0.01);
  DraftHabit bad;
  teach(bad, 0.2);
  std::vector<DraftPolicy::Candidate> both{{.habit = &bad, .most = 16},
                                           {.habit = &good, .most = 16}};
  policy_.plan(both, {.rows = 2, .is_free = true});
  EXPECT_GT(both[1].count, both[0].count);
  EXPECT_EQ(both[0].count + both[1].count, 10);
}

TEST_F(PolicyTest, LargeBatchesTurnItOff) {
  // 16 rows for the price of one, then in proportion.
  measure([](std::int64_t rows) { return 0.01 * std::max(1.0, static_cast<double>(rows) / 16); },
          200);
  std::vector<DraftHabit> habits(64);
  for (DraftHabit& habit : habits) teach(habit, 0.7, 10);
  std::vector<DraftPolicy::Candidate> many;
  for (DraftHabit& habit : habits) many.push_back({.habit = &habit, .most = 16});
  policy_.measured_step(64, 0.04);
  policy_.plan(many, {.rows = 64, .is_free = true});
  for (const auto& candidate : many) EXPECT_EQ(candidate.count, 0);
  policy_.measured_step(4, 0.01);
  policy_.plan(std::span(many).first(4), {.rows = 4, .is_free = true});
  for (const auto& candidate : std::span(many).first(4)) EXPECT_EQ(candidate.count, 3);
}

TEST_F(PolicyTest, TheDraftsOwnTimeCounts) {
  measure([](std::int64_t) { return 0.01; }, 20);
  DraftHabit habit;
  teach(habit, 0.8);
  const auto plan = [&](double round) {
    DraftPolicy::Candidate one{.habit = &habit, .most = 16};
    policy_.plan({&one, 1}, {.rows = 1, .round_seconds = round});
    return one.count;
  };
  EXPECT_GE(plan(0.0005), 5);
  EXPECT_LT(plan(0.003), plan(0.0005));
  EXPECT_EQ(plan(0.01), 0);
}

TEST_F(PolicyTest, WhatIsWrongIsTriedNowAndThenEverMoreSeldom) {
  measure([](std::int64_t rows) { return 0.01 + 0.001 * static_cast<double>(rows); }, 20);
  DraftHabit habit;
  teach(habit, 0);
  std::vector<int> tried;
  for (int step = 0; step < 3000; ++step) {
    policy_.measured_step(1, 0.01);
    DraftPolicy::Candidate one{.habit = &habit, .most = 16};
    policy_.plan({&one, 1}, {.rows = 1});
    if (one.count > 0) {
      EXPECT_LE(one.count, 2);
      tried.push_back(step);
    }
  }
  ASSERT_GE(tried.size(), 5u);
  EXPECT_LE(tried.size(), 12u);
  EXPECT_GT(tried[3] - tried[2], tried[1] - tried[0]);
}

TEST_F(PolicyTest, ADraftThatCannotPayIsHardlyTried) {
  measure([](std::int64_t rows) { return 0.01 + 0.001 * static_cast<double>(rows); }, 20);
  const auto tries = [&](double round) {
    DraftHabit habit;
    teach(habit, 0);
    int tried = 0;
    for (int step = 0; step < 1000; ++step) {
      policy_.measured_step(1, 0.011);
      DraftPolicy::Candidate one{.habit = &habit, .most = 16};
      policy_.plan({&one, 1}, {.rows = 1, .round_seconds = round});
      policy_.step_done({.rows = 1,
                         .draft_rows = one.count,
                         .draft_seconds = round * static_cast<double>(one.count)});
      tried += one.count > 0 ? 1 : 0;
    }
    return tried;
  };
  EXPECT_GE(tries(0.001), 4);
  EXPECT_EQ(tries(0.02), 1);
}

TEST_F(PolicyTest, ComesBackWhenGuessesAreRightAgain) {
  measure([](std::int64_t rows) { return 0.01 + 0.001 * static_cast<double>(rows); }, 20);
  DraftHabit habit;
  teach(habit, 0);
  EXPECT_EQ(plan_one(habit, 1), 0);
  teach(habit, 1.0, 4);
  EXPECT_GE(plan_one(habit, 1), 4);
}

TEST_F(PolicyTest, StepsWithoutGuessesAreMeasuredFirstAndAgain) {
  DraftHabit habit;
  teach(habit, 0.95);
  EXPECT_EQ(plan_one(habit, 1), 0);  // nothing is known yet
  policy_.measured_step(1, 0.01);
  EXPECT_GT(plan_one(habit, 1), 0);
  int without = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t count = plan_one(habit, 1);
    without += count == 0 ? 1 : 0;
    policy_.measured_step(1 + count, 0.01 + 0.0001 * static_cast<double>(count));
  }
  EXPECT_GE(without, 3);
  EXPECT_LE(without, 10);
}

TEST_F(PolicyTest, AFixedNumberIsKept) {
  policy_ = DraftPolicy(5);
  DraftHabit habit;
  EXPECT_EQ(plan_one(habit, 100), 5);
  EXPECT_EQ(plan_one(habit, 100, 2), 2);
}

TEST(StepTimes, BetweenMeasurements) {
  StepTimes times;
  EXPECT_FALSE(times.knows(4));
  for (int i = 0; i < 10; ++i) {
    times.add(4, 1.0);
    times.add(12, 3.0);
  }
  times.add(0, 7);
  times.add(-3, 7);
  times.add(1 << 20, 7);
  times.add(5, -1);
  times.add(5, std::nan(""));
  EXPECT_TRUE(times.knows(4));
  EXPECT_DOUBLE_EQ(times.at(4), 1.0);
  EXPECT_DOUBLE_EQ(times.at(8), 2.0);
  EXPECT_DOUBLE_EQ(times.at(1), 1.0);
  EXPECT_GT(times.at(13), 3.0);
  EXPECT_LT(times.at(13), 3.4);
}

// What guessing costs and brings: prices in steps without guesses.
struct DraftWorld {
  double row;    // of one more row
  double round;  // of one more token for the draft
  double entry;  // of reading the prompt
  double right;  // share of guesses
};

// One answer of `tokens` tokens: what it took, in steps without guesses a token.
double answer_with(DraftPolicy& policy, const DraftWorld& world, std::int64_t tokens,
                   bool& prices_known, std::mt19937& random) {
  constexpr double kStep = 0.004;
  DraftHabit habit;
  std::int64_t made = 1;
  double seconds = 0;
  bool entered = false;
  while (made < tokens) {
    const bool pays_entry = !entered && prices_known;
    DraftPolicy::Candidate one{.habit = &habit,
                               .most = std::min<std::int64_t>(16, tokens - made - 1),
                               .left = tokens - made,
                               .entry_seconds = pays_entry ? world.entry * kStep : 0};
    policy.plan({&one, 1}, {.rows = 1, .round_seconds = prices_known ? world.round * kStep : 0});
    double drafting = 0;
    if (one.count > 0) {
      drafting =
          kStep * (static_cast<double>(one.count) * world.round + (entered ? 0 : world.entry));
      entered = prices_known = true;
    }
    const double step = kStep * (1 + world.row * static_cast<double>(one.count));
    seconds += step + drafting;
    policy.measured_step(1 + one.count, step);
    std::int64_t right = 0;
    while (right < one.count && std::uniform_real_distribution<>(0, 1)(random) < world.right) {
      ++right;
    }
    if (one.count > 0) policy.measured(habit, 0, one.count, right);
    policy.step_done(
        {.rows = 1, .draft_rows = one.count, .accepted = right, .draft_seconds = drafting});
    made += 1 + right;
  }
  return seconds / kStep / static_cast<double>(tokens - 1);
}

// The first answer and the mean of the twenty after it, many times. A draft model knows its prices
// from the beginning.
std::pair<double, double> short_answers(const DraftWorld& world, bool knows_prices = true,
                                        std::int64_t tokens = 32) {
  double first = 0;
  double later = 0;
  constexpr int kTimes = 200;
  for (int time = 0; time < kTimes; ++time) {
    std::mt19937 random(static_cast<unsigned>(time));
    DraftPolicy policy;
    bool prices_known = knows_prices;
    first += answer_with(policy, world, tokens, prices_known, random) / kTimes;
    for (int i = 0; i < 20; ++i) {
      later += answer_with(policy, world, tokens, prices_known, random) / kTimes / 20;
    }
  }
  return {first, later};
}

// An answer of 32 tokens is hardly slower with a draft that does not pay. The first one of all
// loses what finding out takes: reading its text and five guesses; a draft that cannot pay loses
// nothing, unless its price, of one guess, was not known.
TEST(ShortAnswers, LoseNextToNothingWhereGuessingDoesNotPay) {
  for (const DraftWorld& world :
       {DraftWorld{.1, .1, .5, 0}, DraftWorld{.1, .3, 1, 0}, DraftWorld{.5, .1, .5, 0},
        DraftWorld{.1, .9, 3, 0}, DraftWorld{.02, .1, 5, 0}, DraftWorld{.02, .05, .2, 0},
        DraftWorld{.1, .3, 1, .3}, DraftWorld{.5, .1, .5, .6}, DraftWorld{.1, .9, 3, .95},
        DraftWorld{1, 0, 0, .6}}) {
    const auto [first, later] = short_answers(world);
    EXPECT_LE(later, 1.02) << world.row << " " << world.round << " " << world.right;
    const bool may_pay = world.round < 0.5;
    const double guess = world.round + world.row;
    EXPECT_LE(first, may_pay ? 1.03 + (world.entry + 5 * guess) / 31 : 1.001)
        << world.row << " " << world.round << " " << world.right;
    EXPECT_LE(short_answers(world, false).first,
              1.03 + (world.entry + (may_pay ? 5 : 1) * guess) / 31)
        << world.row << " " << world.round << " " << world.right;
  }
}

TEST(ShortAnswers, GainWhereGuessingPays) {
  const auto expect_at_most = [](const DraftWorld& world, double first_most, double later_most) {
    const auto [first, later] = short_answers(world);
    EXPECT_LE(first, first_most) << world.right;
    EXPECT_LE(later, later_most) << world.right;
  };
  // The best that a fixed number of guesses gives: 0.56, 0.55, 0.19, 0.36.
  expect_at_most({.02, .05, .2, .6}, 0.70, 0.61);
  expect_at_most({.1, .1, .5, .8}, 0.75, 0.60);
  expect_at_most({.02, .05, .2, .95}, 0.36, 0.25);
  expect_at_most({.1, .1, .5, .95}, 0.52, 0.40);
}

// A draft that is expensive to start and right three times out of four or more is not given up for
// one wrong guess. The best fixed numbers of guesses give 0.69, 0.78, 0.64 after the reading.
TEST(ShortAnswers, AFirstWrongGuessDoesNotDecide) {
  const auto expect_at_most = [](const DraftWorld& world, double first_most, double later_most) {
    const auto [first, later] = short_answers(world, true, 128);
    EXPECT_LE(first, first_most) << world.right;
    EXPECT_LE(later, later_most) << world.right;
  };
  expect_at_most({.1, .3, 3, .85}, 0.78, 0.74);
  expect_at_most({.1, .3, 3, .75}, 0.88, 0.85);
  expect_at_most({.05, .2, 3, .75}, 0.71, 0.69);
}

}  // namespace
}  // namespace bl
