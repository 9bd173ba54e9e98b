// Guesses change nothing but the number of steps: texts with and without them, on a model whose
// text is known, through the engine without its thread.

#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>

#include "base/error.h"
#include "engine/engine_core.h"
#include "engine/model_draft.h"
#include "engine/ngram_draft.h"
#include "fake_model.h"
#include "scripted_draft.h"

namespace bl {
namespace {

using test::FakeModel;
using test::ScriptedDraft;

struct Answered {
  std::vector<std::int32_t> ids;
  std::vector<TokenLogprobs> logprobs;
  std::optional<FinishReason> reason;
  std::string error;
  Usage usage;
  std::vector<DraftRound> draft_rounds;
};

class SpeculationTest : public testing::Test {
 protected:
  void start(const FakeModel::Options& options, SpeculationOptions speculation) {
    core_.reset();
    model_ = std::make_unique<FakeModel>(options);
    core_ = std::make_unique<EngineCore>(
        *model_, nullptr,
        EngineCore::Options{.end_tokens = {kEnd}, .speculation = std::move(speculation)});
  }
  std::shared_ptr<ScriptedDraft> scripted(double right, bool free = false, unsigned seed = 1) {
    auto draft = std::make_shared<ScriptedDraft>(
        [this](std::span<const std::int32_t> ids) { return model_->follows(ids); }, kVocab, right,
        seed);
    draft->free = free;
    return draft;
  }
  std::shared_ptr<OpenRequest> add(Request request) {
    auto open = std::make_shared<OpenRequest>();
    open->longest = static_cast<std::int64_t>(request.prompt.size()) + request.sampling.max_tokens;
    open->by_limit = true;
    open->rank = ++rank_;
    open->request = std::move(request);
    open->stream = std::make_shared<EventStream>(
        static_cast<std::int32_t>(open->request.sampling.n), std::make_shared<Waker>());
    core_->add(open);
    return open;
  }
  // What each choice of each request gets.
  std::vector<std::vector<Answered>> answer(const std::vector<Request>& requests,
                                            std::int64_t most_steps = 100000) {
    std::vector<std::shared_ptr<OpenRequest>> opened;
    for (const Request& request : requests) opened.push_back(add(request));
    for (std::int64_t i = 0; i < most_steps && core_->requests() > 0; ++i) {
      core_->step(EngineClock::now());
    }
    EXPECT_EQ(core_->requests(), 0);
    std::vector<std::vector<Answered>> out;
    for (const auto& open : opened) {
      auto& choices = out.emplace_back(static_cast<std::size_t>(open->request.sampling.n));
      while (const auto event = open->stream->next(EngineClock::now())) {
        Answered& to = choices[static_cast<std::size_t>(event->choice)];
        to.ids.insert(to.ids.end(), event->ids.begin(), event->ids.end());
        to.logprobs.insert(to.logprobs.end(), event->logprobs.begin(), event->logprobs.end());
        if (!event->finish) continue;
        to.reason = event->finish;
        to.error = event->error;
        to.usage = event->usage;
        to.draft_rounds = event->draft_rounds;
      }
    }
    const EngineStats stats = core_->stats();
    EXPECT_EQ(stats.free_pages + stats.idle_pages, stats.pages);
    EXPECT_EQ(core_->cache().index().size(), stats.idle_pages);
    return out;
  }
  static Request request(std::size_t tokens, std::int32_t seed, std::int64_t max_tokens) {
    Request request;
    for (std::size_t i = 0; i < tokens; ++i) {
      request.prompt.push_back(
          static_cast<std::int32_t>((i * 31 + static_cast<std::size_t>(seed) * 17) % 997));
    }
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    request.ignore_end_tokens = true;
    return request;
  }

  static constexpr std::int32_t kEnd = 999;
  static constexpr std::int64_t kVocab = 1000;
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<EngineCore> core_;
  double rank_ = 0;
};

TEST_F(SpeculationTest, RightGuessesSaveSteps) {
  start({.logit_rows = 64}, {scripted(1.0), 7});
  const auto answers = answer({request(300, 1, 200)});
  const Answered& answer = answers[0][0];
  EXPECT_EQ(answer.ids, model_->continuation(request(300, 1, 1).prompt, 200));
  EXPECT_GT(answer.usage.drafted_tokens, 100);
  // Only guesses behind the last token that was taken can be unverified.
  EXPECT_EQ(answer.usage.accepted_tokens, answer.usage.drafted_tokens);
  EXPECT_EQ(core_->stats().steps, 200 - answer.usage.accepted_tokens);
  EXPECT_EQ(core_->stats().accepted_tokens, answer.usage.accepted_tokens);
  EXPECT_EQ(core_->stats().decode_tokens, 199);
  EXPECT_EQ(answer.usage.prefill_tokens, 300);
}

// Each round is what stands behind the text of its step, and how much of it the text then has.
TEST_F(SpeculationTest, RoundsAreRecordedWhereThatIsAsked) {
  start({.logit_rows = 64}, {scripted(0.8), 5});
  Request wanted = request(60, 1, 150);
  wanted.record_draft_rounds = true;
  Request other = request(60, 2, 150);
  const std::vector<std::int32_t> truth = model_->continuation(wanted.prompt, 150);
  std::vector<DraftRound> seen;
  model_->on_step = [&](std::span<const StepItem> items) {
    for (const StepItem& item : items) {
      const std::vector<std::int32_t>& ids = item.sequence->ids;
      if (item.count < 2 || item.sequence->cached < 60) continue;
      if (ids.front() != wanted.prompt.front()) continue;
      DraftRound& round = seen.emplace_back();
      round.drafted = static_cast<std::int32_t>(item.count - 1);
      auto place = static_cast<std::size_t>(item.sequence->cached) + 1;
      for (; place < ids.size() && ids[place] == truth[place - 60]; ++place) ++round.accepted;
    }
  };
  const auto answers = answer({wanted, other});
  const Answered& first = answers[0][0];
  EXPECT_GT(seen.size(), 20u);
  EXPECT_EQ(first.draft_rounds, seen);
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  for (const DraftRound& round : first.draft_rounds) {
    drafted += round.drafted;
    accepted += round.accepted;
  }
  EXPECT_EQ(drafted, first.usage.drafted_tokens);
  EXPECT_EQ(accepted, first.usage.accepted_tokens);
  EXPECT_GT(answers[1][0].usage.drafted_tokens, 0);
  EXPECT_TRUE(answers[1][0].draft_rounds.empty());
}

TEST_F(SpeculationTest, WrongGuessesCostNothingButTheirRows) {
  start({.logit_rows = 64}, {scripted(0.0), 7});
  const auto answers = answer({request(300, 1, 100)});
  EXPECT_EQ(answers[0][0].ids, model_->continuation(request(300, 1, 1).prompt, 100));
  EXPECT_GT(answers[0][0].usage.drafted_tokens, 100);
  EXPECT_EQ(answers[0][0].usage.accepted_tokens, 0);
  EXPECT_EQ(core_->stats().steps, 100);
}

TEST_F(SpeculationTest, PagesAreNotPublishedBeforeTheyAreVerified) {
  // The draft is wrong about half of the time and crosses the border of a page again and again;
  // others who would share the page read back what they got (FakeModel does).
  for (unsigned seed = 0; seed < 20; ++seed) {
    start({.logit_rows = 64, .pages = 24}, {scripted(0.5, false, seed), 7});
    std::vector<Request> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(request(240 + seed, 1, 60));
    const auto answers = answer(requests);
    for (const auto& one : answers) {
      EXPECT_EQ(one[0].ids, model_->continuation(requests[0].prompt, 60));
    }
  }
}

TEST_F(SpeculationTest, SlowReadersAndLimitsHold) {
  start({.logit_rows = 64}, {scripted(1.0), 7});
  Request slow = request(30, 1, 300);
  slow.unread_tokens = 10;
  const auto open = add(slow);
  for (int i = 0; i < 100; ++i) core_->step(EngineClock::now());
  EXPECT_EQ(open->stream->unread(0), 10);
  open->stream->cancel();
  for (const std::int64_t most : {1, 2, 3, 7, 8, 9}) {
    const auto answers = answer({request(30, 2, most)});
    EXPECT_EQ(answers[0][0].ids, model_->continuation(request(30, 2, 1).prompt, most));
    EXPECT_EQ(answers[0][0].reason, FinishReason::kMaxTokens);
  }
  Request off = request(30, 5, 40);
  off.speculate = false;
  EXPECT_EQ(answer({off})[0][0].usage.drafted_tokens, 0);
}

// Everything that has a history or a state, with and without guesses.
TEST_F(SpeculationTest, EverySamplerIsTheSame) {
  std::vector<Request> requests;
  const auto add_request = [&](auto&& change) {
    Request r = request(40 + requests.size(), static_cast<std::int32_t>(requests.size()), 60);
    r.sampling.temperature = 7;  // far from the model's own choice, so that draws matter
    r.sampling.top_k = 0;
    r.sampling.top_p = 1;
    r.sampling.seed = requests.size() * 77;
    change(r);
    requests.push_back(std::move(r));
  };
  add_request([](Request& r) { r.sampling.temperature = 4; });
  add_request([](Request& r) { r.sampling.repetition_penalty = 1.7; });
  add_request([](Request& r) { r.sampling.presence_penalty = 1.5; });
  add_request([](Request& r) { r.sampling.frequency_penalty = 1.5; });
  add_request([](Request& r) { r.sampling.dry_multiplier = 1; });
  add_request([](Request& r) {
    r.sampling.mirostat_mode = 2;
    r.sampling.mirostat_tau = 3;
    r.sampling.temperature = 3;
  });
  add_request([](Request& r) {
    r.sampling.adaptive_target = 0.4;
    r.sampling.temperature = 3;
  });
  add_request([](Request& r) { r.sampling.xtc_probability = 0.5; });
  add_request([](Request& r) {
    r.sampling.xtc_probability = 0.5;
    r.sampling.xtc_random = true;
    r.sampling.temperature = 4;
  });
  add_request([](Request& r) {
    r.sampling.logprobs = true;
    r.sampling.top_logprobs = 3;
  });
  add_request([](Request& r) {
    r.sampling.logprobs = true;
    r.sampling.logprobs_after = true;
    r.sampling.mirostat_mode = 2;
    r.sampling.temperature = 3;
  });
  add_request([](Request& r) { r.sampling.n = 3; });
  add_request([](Request& r) {
    r.sampling.n = 2;
    r.sampling.best_of = 4;
  });
  add_request([](Request& r) {
    r.ignore_end_tokens = false;
    r.sampling.min_tokens = 20;
    r.sampling.logit_bias = {{kEnd, 18}};
  });
  add_request([](Request& r) {
    r.sampling.stop_tokens = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    r.sampling.logit_bias = {{5, 14}, {7, 14}};
  });
  add_request([](Request& r) { r.sampling.loop_detect_window = 12; });
  const FakeModel::Options options{.logit_rows = 96, .pages = 200, .gives_logits = true};
  start(options, {});
  const auto expected = answer(requests);
  for (const double right : {0.5, 1.0}) {
    for (const bool free : {false, true}) {
      SCOPED_TRACE(right);
      start(options, {scripted(right, free), 6});
      const auto got = answer(requests);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(i);
        for (std::size_t c = 0; c < expected[i].size(); ++c) {
          EXPECT_EQ(got[i][c].ids, expected[i][c].ids);
          EXPECT_EQ(got[i][c].reason, expected[i][c].reason) << got[i][c].error;
          ASSERT_EQ(got[i][c].logprobs.size(), expected[i][c].logprobs.size());
          for (std::size_t t = 0; t < got[i][c].logprobs.size(); ++t) {
            EXPECT_EQ(got[i][c].logprobs[t].token.logprob,
                      expected[i][c].logprobs[t].token.logprob);
          }
        }
      }
      EXPECT_GT(core_->stats().accepted_tokens, 50);
      EXPECT_LT(core_->stats().accepted_tokens, core_->stats().drafted_tokens);
    }
  }
}

// Three tokens drawn with guesses, 30,000 times with other seeds, against the probabilities that
// the model's logits give: χ² over all triples.
TEST_F(SpeculationTest, TheDistributionIsTheModels) {
  constexpr std::int64_t kTokens = 5;
  constexpr double kTemperature = 12;
  constexpr int kDraws = 30000;
  start({.vocab = kTokens, .logit_rows = 96, .pages = 64, .gives_logits = true, .checks = true},
        {});
  const std::vector<std::int32_t> prompt{1, 2};
  // What FakeModel gives: see FakeModel::run.
  const auto chances = [&](const std::vector<std::int32_t>& text) {
    std::vector<double> p(kTokens);
    const std::int32_t best = model_->follows(text);
    double sum = 0;
    for (std::int64_t i = 0; i < kTokens; ++i) {
      const double logit = i == best ? 20 : static_cast<double>((i * 7 + best) % 13) * 0.1;
      sum += p[static_cast<std::size_t>(i)] = std::exp(logit / kTemperature);
    }
    for (double& one : p) one /= sum;
    return p;
  };
  auto draft = std::make_shared<ScriptedDraft>(
      [this](std::span<const std::int32_t> ids) { return model_->follows(ids); }, kTokens, 0.8, 3);
  core_ = std::make_unique<EngineCore>(
      *model_, nullptr, EngineCore::Options{.end_tokens = {}, .speculation = {draft, 4}});
  std::map<std::vector<std::int32_t>, int> seen;
  for (int first = 0; first < kDraws; first += 500) {
    std::vector<Request> requests;
    for (int i = 0; i < 500; ++i) {
      Request r = request(1, 0, 3);
      r.prompt = prompt;
      r.sampling.temperature = kTemperature;
      r.sampling.top_k = 0;
      r.sampling.top_p = 1;
      r.sampling.seed = static_cast<std::uint64_t>(first + i);
      requests.push_back(std::move(r));
    }
    for (const auto& one : answer(requests)) ++seen[one[0].ids];
  }
  EXPECT_GT(core_->stats().accepted_tokens, 5000);
  EXPECT_GT(core_->stats().drafted_tokens, core_->stats().accepted_tokens + 5000);
  double statistic = 0;
  int cells = 0;
  for (std::int32_t a = 0; a < kTokens; ++a) {
    for (std::int32_t b = 0; b < kTokens; ++b) {
      for (std::int32_t c = 0; c < kTokens; ++c) {
        const double expected = kDraws * chances(prompt)[static_cast<std::size_t>(a)] *
                                chances({1, 2, a})[static_cast<std::size_t>(b)] *
                                chances({1, 2, a, b})[static_cast<std::size_t>(c)];
        const auto found = seen.find({a, b, c});
        const double count = found == seen.end() ? 0 : found->second;
        ASSERT_GT(expected, 5);
        statistic += (count - expected) * (count - expected) / expected;
        ++cells;
      }
    }
  }
  const double freedom = cells - 1;
  // Five deviations: a chance of one in millions, if the distribution is right.
  EXPECT_LT(statistic, freedom + 5 * std::sqrt(2 * freedom));
  EXPECT_GT(statistic, freedom - 5 * std::sqrt(2 * freedom));
}

TEST_F(SpeculationTest, ADraftThatFailsIsTurnedOff) {
  auto draft = scripted(1.0);
  start({.logit_rows = 64}, {draft, 4});
  int asked = 0;
  draft->on_propose = [&](std::span<const DraftJob>) {
    if (++asked == 5) fail(ErrorCode::kDevice, "the other card has left");
  };
  const auto answers = answer({request(30, 1, 100), request(40, 2, 100)});
  EXPECT_EQ(asked, 5);
  for (std::size_t i = 0; i < 2; ++i) {
    const Request r = request(30 + 10 * i, static_cast<std::int32_t>(i) + 1, 100);
    EXPECT_EQ(answers[i][0].ids, model_->continuation(r.prompt, 100));
    EXPECT_EQ(answers[i][0].reason, FinishReason::kMaxTokens);
  }
}

TEST_F(SpeculationTest, DamagedLogitsBehindAGuessAreAnErrorOnlyWhenReached) {
  start({.logit_rows = 64, .gives_logits = true}, {scripted(0.5), 7});
  const Request bad = request(40, 3, 20);
  const auto text = model_->continuation(bad.prompt, 20);
  // Behind what is really said, and never behind a wrong guess.
  model_->is_damaged = [&](std::span<const std::int32_t> ids) {
    if (ids.size() <= bad.prompt.size()) return false;
    const auto said = ids.subspan(bad.prompt.size());
    return !std::equal(said.begin(), said.end(), text.begin()) || said.size() == 15;
  };
  const auto answers = answer({bad});
  EXPECT_EQ(answers[0][0].reason, FinishReason::kError);
  EXPECT_EQ(answers[0][0].ids, std::vector<std::int32_t>(text.begin(), text.begin() + 15));
}

TEST_F(SpeculationTest, PromptsAreReadBesideGuesses) {
  // Half of a small budget belongs to the prompt, whatever is guessed.
  start({.step_tokens = 32, .logit_rows = 32}, {scripted(1.0), 7});
  add(request(10, 1, 2000));
  add(request(10, 2, 2000));
  for (int i = 0; i < 4; ++i) core_->step(EngineClock::now());
  add(request(600, 3, 1));
  for (int i = 0; i < 600 / 15 + 2; ++i) core_->step(EngineClock::now());
  EXPECT_EQ(core_->requests(), 2);  // the prompt has been read and answered
}

// --- a model that drafts ---

TEST_F(SpeculationTest, AModelThatDraftsForItselfIsAlwaysRight) {
  for (const bool samples : {false, true}) {
    SCOPED_TRACE(samples);
    const FakeModel::Options options{.logit_rows = 64, .gives_logits = samples};
    auto draft = std::make_shared<ModelDraft>(std::make_unique<FakeModel>(options), nullptr);
    draft->check_target(nullptr, kVocab);
    start(options, {draft, 5});
    std::vector<Request> requests;
    for (int i = 0; i < 5; ++i) requests.push_back(request(50 + 60 * i, i, 80));
    if (samples) {
      for (Request& r : requests) {
        r.sampling.temperature = 6;
        r.sampling.seed = r.prompt.size();
        r.sampling.repetition_penalty = 1.2;
        r.sampling.mirostat_mode = r.prompt.size() % 3 == 0 ? 2 : 0;
      }
    }
    const auto got = answer(requests);
    EXPECT_GT(core_->stats().accepted_tokens, 250);
    EXPECT_EQ(core_->stats().accepted_tokens, core_->stats().drafted_tokens);
    start(options, {});
    const auto expected = answer(requests);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(got[i][0].ids, expected[i][0].ids);
  }
}

TEST_F(SpeculationTest, AShortDraftStopsGuessingAndNothingElse) {
  const FakeModel::Options small{.context = 100, .logit_rows = 4, .pages = 2};
  auto draft = std::make_shared<ModelDraft>(std::make_unique<FakeModel>(small), nullptr);
  draft->check_target(nullptr, kVocab);
  start({.logit_rows = 64}, {draft, 5});
  const auto answers = answer({request(50, 1, 300), request(90, 2, 200), request(200, 3, 50)});
  EXPECT_EQ(answers[0][0].ids, model_->continuation(request(50, 1, 1).prompt, 300));
  EXPECT_EQ(answers[1][0].ids, model_->continuation(request(90, 2, 1).prompt, 200));
  EXPECT_EQ(answers[2][0].ids, model_->continuation(request(200, 3, 1).prompt, 50));
  EXPECT_GT(answers[0][0].usage.accepted_tokens, 30);
  EXPECT_LE(answers[0][0].usage.drafted_tokens, 50);
  EXPECT_EQ(answers[2][0].usage.drafted_tokens, 0);
}

TEST_F(SpeculationTest, ALongPromptIsReadByTheDraftOnce) {
  const FakeModel::Options options{.step_tokens = 64, .logit_rows = 32};
  auto model = std::make_unique<FakeModel>(options);
  FakeModel& small = *model;
  auto draft = std::make_shared<ModelDraft>(std::move(model), nullptr);
  draft->check_target(nullptr, kVocab);
  start({.logit_rows = 64}, {draft, 5});
  Request r = request(1000, 1, 200);
  r.sampling.n = 2;
  auto answers = answer({r});
  EXPECT_EQ(answers[0][1].ids, model_->continuation(r.prompt, 200));
  EXPECT_GT(answers[0][0].usage.accepted_tokens, 100);
  EXPECT_LT(small.computed, 2 * 1000 + 2 * 260);
  EXPECT_LE(small.largest_step, 64);
  // Again: what it has read stays.
  const std::int64_t before = small.computed;
  answers = answer({r});
  EXPECT_LT(small.computed - before, 2 * 260 + 256);
  EXPECT_GT(draft->cache().tokens_found + draft->cache().pages_shared, 0);
}

TEST_F(SpeculationTest, ADraftWithOtherTokensIsRefused) {
  ModelDraft draft(std::make_unique<FakeModel>(FakeModel::Options{.vocab = 900}), nullptr);
  try {
    draft.check_target(nullptr, 1000);
    FAIL() << "a draft of another vocabulary was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("900"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("1000"), std::string::npos) << error.what();
  }
}

TEST_F(SpeculationTest, ADraftWithoutPagesOrBudgetGuessesLess) {
  const FakeModel::Options tiny{.step_tokens = 8, .logit_rows = 2, .pages = 3};
  auto draft = std::make_shared<ModelDraft>(std::make_unique<FakeModel>(tiny), nullptr);
  draft->check_target(nullptr, kVocab);
  start({.logit_rows = 64, .pages = 40}, {draft, 5});
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(request(100 + 50 * i, i, 60));
  const auto answers = answer(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[i][0].ids, model_->continuation(requests[i].prompt, 60));
  }
}

}  // namespace
}  // namespace bl
