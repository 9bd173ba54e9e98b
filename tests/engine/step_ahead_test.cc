// Steps that are enqueued before the one before them has told its tokens.

#include "engine/step_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core_test.h"
#include "engine/engine.h"
#include "engine/step_runner.h"
#include "on_cuda.h"
#include "tiny_model.h"

namespace bl {
namespace {

using test::CoreTest;

class StepAheadTest : public CoreTest {
 protected:
  // Steps until the answer has so many tokens.
  int steps_until(Asked& asked, std::size_t tokens) {
    for (int steps = 0; steps < 100; ++steps) {
      if (asked.ids[0].size() >= tokens) return steps;
      step();
      read(asked);
    }
    return 100;
  }
};

TEST_F(StepAheadTest, AnswersAreWhatTheyAreOtherwise) {
  start({.repeats = true});
  std::vector<Asked*> asked;
  for (const std::int32_t i : {1, 2, 3}) {
    Request r = request(text(40, i), 100 + 30 * i);
    r.adapters = {{"", 0.25 * i}};
    asked.push_back(&ask(r));
  }
  run_all(400);
  for (const Asked* one : asked) {
    const Request& r = one->open->request;
    EXPECT_EQ(one->ids[0],
              model_->continuation(r.prompt, r.sampling.max_tokens, test::adapters_of(r)));
  }
  // But for the first steps, and those in which an answer ended.
  EXPECT_GT(model_->repeated, 180);
  EXPECT_LT(core_->stats().steps, 200);
  EXPECT_EQ(core_->stats().decode_tokens, 130 + 160 + 190 - 3);
  expect_no_leak();
}

// Answers that go on by the host are left behind for a step where the others are many; they are
// what they are otherwise, and so are the others.
TEST_F(StepAheadTest, FewWhoCannotGoAheadHoldUpNobody) {
  start({.repeats = true});
  std::vector<Asked*> asked;
  for (const std::int32_t i : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
    Request r = request(text(40, i), 200);
    if (i == 1) r.sampling.min_tokens = 200;  // the host's
    if (i == 7) r.sampling.min_tokens = 150;  // the host's, for a while
    asked.push_back(&ask(r));
  }
  run_all(500);
  for (const Asked* one : asked) {
    const Request& r = one->open->request;
    EXPECT_EQ(one->ids[0], model_->continuation(r.prompt, r.sampling.max_tokens));
  }
  // Every second step, until those are done that may always go on.
  EXPECT_GT(model_->repeated, 90);
  EXPECT_LT(core_->stats().steps, 320);
  expect_no_leak();
}

// Who needs his last token, but not the host, costs the others less than he would lose.
TEST_F(StepAheadTest, WhoNeedsHisTokenIsWaitedFor) {
  start({.repeats = true});
  for (const std::int32_t i : {0, 1, 2, 3, 4, 5}) {
    Request r = request(text(40, i), 50);
    if (i == 4) r.sampling.repetition_penalty = 1 + 1e-9;
    ask(r);
  }
  run_all(200);
  EXPECT_EQ(model_->repeated, 0);
  EXPECT_LT(core_->stats().steps, 60);
}

// Half of the others' speed would be more than is gained.
TEST_F(StepAheadTest, ManyWhoCannotGoAheadAreWaitedFor) {
  start({.repeats = true});
  for (const std::int32_t i : {0, 1, 2, 3}) {
    Request r = request(text(40, i), 50);
    if (i % 2 == 1) r.sampling.min_tokens = 50;
    ask(r);
  }
  run_all(200);
  EXPECT_EQ(model_->repeated, 0);
  EXPECT_LT(core_->stats().steps, 60);
}

// The step that runs when an answer turns out to be over computes a token too many, whose page was
// given back meanwhile.
TEST_F(StepAheadTest, AnEndTokenEndsAnAnswer) {
  start({.pages = 8, .repeats = true});
  Request r = request(text(250, 1), 1000);
  r.sampling.stop_tokens = {model_->continuation(r.prompt, 30).back()};
  Asked& ends = ask(r);
  Asked& goes_on = ask(request(text(30, 2), 300));
  run_all(400);
  EXPECT_EQ(ends.reasons[0], FinishReason::kEndToken);
  EXPECT_LE(ends.ids[0].size(), 30u);
  EXPECT_EQ(goes_on.ids[0], model_->continuation(text(30, 2), 300));
  EXPECT_GT(model_->repeated, 250);
  expect_no_leak();
}

TEST_F(StepAheadTest, WhoComesWaitsForOneStepMore) {
  start({.repeats = true});
  Asked& first = ask(request(text(40, 1), 200));
  steps_until(first, 10);
  Asked& second = ask(request(text(40, 2), 20));
  EXPECT_LE(steps_until(second, 1), 2);
  run_all(400);
  EXPECT_EQ(second.ids[0], model_->continuation(text(40, 2), 20));
  EXPECT_EQ(first.ids[0], model_->continuation(text(40, 1), 200));
}

// All places are taken by answers that go on for long.
TEST_F(StepAheadTest, WhoRanksBetterGetsAPlace) {
  start({.repeats = true}, 2);
  Asked& first = ask(request(text(40, 1), 300));
  Asked& second = ask(request(text(40, 2), 300));
  steps_until(first, 10);
  Request urgent = request(text(40, 3), 5);
  urgent.priority = 5;
  Asked& third = ask(urgent);
  EXPECT_LE(steps_until(third, 1), 2);
  EXPECT_EQ(second.open->stream->unread(0), 11);
  run_all(400);
  EXPECT_EQ(first.usages[0].preemptions, 0);
  EXPECT_EQ(second.usages[0].preemptions, 1);
  for (const Asked& one : asked_) {
    const Request& r = one.open->request;
    EXPECT_EQ(one.ids[0], model_->continuation(r.prompt, r.sampling.max_tokens));
  }
  expect_no_leak();
}

TEST_F(StepAheadTest, WhoIsNotReadGivesHisPlaceAway) {
  start({.repeats = true}, 2);
  Request slow = request(text(40, 1), 300);
  slow.unread_tokens = 5;
  ask(slow);
  Asked& busy = ask(request(text(40, 2), 300));
  steps_until(busy, 20);
  Asked& third = ask(request(text(40, 3), 30));
  EXPECT_LE(steps_until(third, 1), 2);
  // Who is not read waits now, and holds up nobody.
  const std::int64_t before = model_->repeated;
  steps_until(third, 30);
  EXPECT_GT(model_->repeated, before + 20);
  steps_until(busy, 100);
  EXPECT_GT(model_->repeated, before + 60);
  run_all(700);
  EXPECT_EQ(asked_.front().ids[0], model_->continuation(slow.prompt, 300));
  expect_no_leak();
}

// A server under load: those who wait have come later.
TEST_F(StepAheadTest, AQueueBehindFullPlacesHoldsUpNobody) {
  start({.repeats = true}, 2);
  for (const std::int32_t i : {1, 2, 3, 4}) ask(request(text(40, i), 200));
  for (int i = 0; i < 100; ++i) {
    step();
    for (Asked& one : asked_) read(one);
  }
  EXPECT_GT(model_->repeated, 90);
  run_all(500);
}

TEST_F(StepAheadTest, PagesOfACancelledAnswerAreFreeAfterTwoSteps) {
  start({.repeats = true});
  Asked& asked = ask(request(text(600, 1), 200));
  steps_until(asked, 10);
  asked.open->stream->cancel();
  step();
  step();
  EXPECT_EQ(core_->requests(), 0);
  EXPECT_FALSE(step());
  expect_no_leak();
}

TEST_F(StepAheadTest, ASlowReaderPausesHimself) {
  expect_slow_reader_pauses({.repeats = true}, 100, 200);
}

// The logits of a row that is none are gone when that is known: the row is computed again.
TEST_F(StepAheadTest, DamagedRowsEndTheirRequestAlone) {
  expect_damage_ends_one({.repeats = true}, 14, 40, 200);
  EXPECT_GT(model_->repeated, 20);
}

// Two who compute one text; the row that is lost stands at the end of a page, whose last token is
// written again.
TEST_F(StepAheadTest, ALostRowAtTheEndOfAPageIsComputedIntoPagesOfOnesOwn) {
  start({.repeats = true});
  model_->is_damaged = [](std::span<const std::int32_t> ids) { return ids.size() == 512; };
  for (int i = 0; i < 2; ++i) ask(request(text(250, 1), 300));
  run_all(400);
  EXPECT_GT(model_->repeated, 200);
  for (const Asked& one : asked_) {
    EXPECT_EQ(one.reasons[0], FinishReason::kError);
    EXPECT_EQ(one.ids[0], model_->continuation(text(250, 1), 262));
  }
  EXPECT_EQ(core_->cache().index().size(), 1);
  expect_no_leak();
}

TEST_F(StepAheadTest, AStepThatFailsEndsWhoWasInIt) {
  for (const int failing : {3, 4, 5}) {
    SCOPED_TRACE(failing);
    asked_.clear();
    expect_failure_ends_one({.repeats = true}, failing, 5);
  }
}

// --- on a model ---

std::unique_ptr<ModelSession> load(const std::string& backend, bool deterministic = false) {
  SessionOptions options;
  options.deterministic = deterministic;
  options.model = test::make_tiny_model("step-ahead");
  options.backend = backend;
  options.threads = 2;
  options.context = 512;
  options.sequences = 8;
  return ModelSession::load(options);
}

SamplingParams params_of(std::int32_t i) {
  SamplingParams params;
  params.temperature = i == 0 ? 0 : 1.2;
  params.seed = static_cast<std::uint64_t>(i);
  params.logprobs = i == 2;
  if (i == 1) params.logit_bias = {{70, 1.5}};
  return params;
}

// The tokens and log-probabilities of three sequences, one step after the other or each behind one
// that is under way.
std::vector<double> decode(ModelSession& session, bool ahead) {
  StepRunner runner(session);
  std::vector<SamplingParams> params{params_of(0), params_of(1), params_of(2)};
  std::vector<Sequence> sequences;
  std::vector<StepItem> items;
  for (std::int32_t i = 0; i < 3; ++i) {
    sequences.push_back(session.new_sequence());
    sequences.back().ids = {65 + i, 66, 67, 68 + i};
    sequences.back().reach = 400;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    items.push_back({.sequence = &sequences[i],
                     .count = 4,
                     .logits = LogitRows::kLast,
                     .sampling = &params[i],
                     .seed = params[i].seed,
                     .log_probabilities = params[i].logprobs});
  }
  std::vector<double> out;
  runner.start(items);
  for (StepItem& item : items) item.count = 1;
  for (int step = 0; step < 300; ++step) {
    if (ahead) {
      EXPECT_TRUE(runner.repeat(items));
    }
    const StepOutput output = runner.take();
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_GE(output.ids[i], 0);
      sequences[i].ids.push_back(output.ids[i]);
      out.push_back(output.ids[i]);
      out.push_back(static_cast<double>(output.log_probability(static_cast<std::int64_t>(i))));
      sequences[i].cached += ahead ? 1 : 0;
    }
    if (!ahead) runner.start(items);
  }
  return out;
}

TEST(StepsAhead, TokensAreThoseOfOneStepAfterTheOther) {
  const auto session = load("ref");
  EXPECT_EQ(decode(*session, true), decode(*session, false));
}

TEST(StepsAhead, PenaltiesNeedTheirTokens) {
  const auto session = load("ref");
  StepRunner runner(*session);
  SamplingParams params;
  params.repetition_penalty = 1.1;
  Sequence sequence = session->new_sequence();
  sequence.ids = {65};
  sequence.reach = 100;
  const StepItem item{.sequence = &sequence,
                      .count = 1,
                      .logits = LogitRows::kLast,
                      .sampling = &params,
                      .seed = params.seed};
  runner.start({&item, 1});
  EXPECT_FALSE(runner.repeat({&item, 1}));
  EXPECT_GE(runner.take().ids[0], 0);
}

// Two sequences go ahead, two are left behind: one that the model chooses by its history, and one
// whose logits come to the host. What these two are given, whether the step behind is under way
// or not, is what they get alone.
void expect_left_ones_lack_nothing(ModelSession& session) {
  StepRunner runner(session);
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplingParams penalised = greedy;
  penalised.repetition_penalty = 1.3;
  std::vector<Sequence> sequences;
  std::vector<StepItem> items;
  for (std::int32_t i = 0; i < 4; ++i) {
    sequences.push_back(session.new_sequence());
    sequences.back().ids = {65 + i, 66, 67, 68 + i, 68 + i};
    sequences.back().reach = 400;
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const SamplingParams* sampling = i < 2 ? &greedy : i == 2 ? &penalised : nullptr;
    items.push_back(
        {.sequence = &sequences[i], .count = 5, .logits = LogitRows::kLast, .sampling = sampling});
  }
  std::vector<std::vector<float>> alone;
  for (const StepItem& item : items) {
    Sequence fresh = session.new_sequence();
    fresh.ids = item.sequence->ids;
    fresh.reach = 400;
    StepItem one = item;
    one.sequence = &fresh;
    one.sampling = nullptr;
    const std::span<const float> row = runner.run({&one, 1}).row(0);
    alone.emplace_back(row.begin(), row.end());
  }
  for (const bool ahead : {false, true}) {
    SCOPED_TRACE(ahead);
    for (Sequence& sequence : sequences) {
      runner.truncate(sequence, 0);
      const auto i = static_cast<std::int32_t>(&sequence - sequences.data());
      sequence.ids = {65 + i, 66, 67, 68 + i, 68 + i};
    }
    for (StepItem& item : items) item.count = 5;
    runner.start(items);
    for (StepItem& item : items) item.count = 1;
    if (ahead) {
      EXPECT_FALSE(runner.repeat(std::span(items).first(3)));  // the third one wants its token
      EXPECT_TRUE(runner.repeat(std::span(items).first(2)));
    }
    const StepOutput output = runner.take();
    for (const std::size_t i : {0, 1}) {
      EXPECT_EQ(output.ids[i],
                std::max_element(alone[i].begin(), alone[i].end()) - alone[i].begin());
    }
    EXPECT_GE(output.ids[2], 0);
    ASSERT_EQ(output.ids[3], -1);
    ASSERT_TRUE(output.logits.has(3));
    EXPECT_FALSE(output.lost(3));
    const std::span<const float> row = output.logits.row(3);
    float furthest = 0;
    for (std::size_t v = 0; v < alone[3].size(); ++v) {
      furthest = std::max(furthest, std::abs(row[v] - alone[3][v]));
    }
    EXPECT_LT(furthest, 2e-2f);
    if (!ahead) continue;
    for (const std::size_t i : {0, 1}) {
      sequences[i].ids.push_back(output.ids[i]);
      ++sequences[i].cached;
    }
    const StepOutput next = runner.take();
    ASSERT_EQ(next.ids.size(), 2u);
    for (const std::size_t i : {0, 1}) EXPECT_GE(next.ids[i], 0);
  }
}

TEST(StepsAhead, WhoIsLeftBehindLacksNothing) { expect_left_ones_lack_nothing(*load("ref")); }

class StepsAheadOnCuda : public test::OnCuda {};

TEST_F(StepsAheadOnCuda, WhoIsLeftBehindLacksNothing) {
  const auto session = load("cuda:0", true);
  for (int round = 0; round < 3; ++round) expect_left_ones_lack_nothing(*session);
}

TEST_F(StepsAheadOnCuda, TokensAreThoseOfOneStepAfterTheOther) {
  const auto session = load("cuda:0");
  const std::vector<double> expected = decode(*session, false);
  for (int round = 0; round < 3; ++round) {
    const std::vector<double> found = decode(*session, true);
    const auto [at, other] = std::mismatch(found.begin(), found.end(), expected.begin());
    EXPECT_EQ(at - found.begin(), std::ssize(expected)) << "round " << round;
  }
}

// Answers to eight requests of an engine that runs ahead and of one that may not (for they ask for
// what comes before, which changes nothing). `with_host`: one of them is the host's for long, and
// left behind where the others go ahead; steps have different rows then.
void expect_same_answers(bool with_host) {
  std::vector<std::vector<std::int32_t>> answers[2];
  for (const bool penalised : {false, true}) {
    Engine engine(load("cuda:0", with_host));
    std::vector<RequestHandle> handles;
    for (std::int32_t i = 0; i < 8; ++i) {
      Request request;
      request.prompt = {65, 66, 67, i};
      request.sampling = params_of(i % 2);
      if (with_host && i == 3) request.sampling.min_tokens = 80;
      request.sampling.max_tokens = 40 + 20 * i;
      if (penalised) request.sampling.frequency_penalty = 1e-30;
      request.ignore_end_tokens = true;
      handles.push_back(engine.submit(request));
    }
    for (RequestHandle& handle : handles) answers[penalised].push_back(handle.wait().front().ids);
  }
  EXPECT_EQ(answers[0], answers[1]);
}

TEST_F(StepsAheadOnCuda, AnswersAreThoseOfOneStepAfterTheOther) { expect_same_answers(false); }

TEST_F(StepsAheadOnCuda, AnswersAreTheSameWhereOneIsLeftBehind) { expect_same_answers(true); }

}  // namespace
}  // namespace bl
