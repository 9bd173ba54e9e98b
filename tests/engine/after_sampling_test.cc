// Hooks that see each token when it has been chosen, and may put another in its place.
#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/thread_pool.h"
#include "core_test.h"
#include "engine/row_sampler.h"

namespace bl {
namespace {

class AfterSampling : public test::CoreTest {
 protected:
  // Every third token of the text is another one.
  static std::int32_t other(const SampledToken& token) {
    return token.position % 3 == 0 ? (token.id + 7) % 990 : token.id;
  }
  // What the model says where every third token is another one.
  std::vector<std::int32_t> expected(std::vector<std::int32_t> text, std::size_t tokens) const {
    std::vector<std::int32_t> answer;
    while (answer.size() < tokens) {
      const SampledToken token{.id = model_->follows(text),
                               .position = static_cast<std::int64_t>(text.size())};
      answer.push_back(other(token));
      text.push_back(answer.back());
    }
    return answer;
  }
};

// What takes the host's time for one request comes behind the tokens that the others have already.
TEST_F(AfterSampling, TokensThatTheModelHasChosenDoNotWaitForIt) {
  start({.hosts_rows = true});
  Asked* other = nullptr;
  std::size_t calls = 0;
  Request hooked = request(text(50, 1), 40);
  hooked.after_sampling = [&](const SampledToken& token) {
    read(*other);
    EXPECT_EQ(other->ids[0].size(), ++calls);  // of this step, too
    return token.id;
  };
  Asked& first = ask(hooked);
  other = &ask(request(text(50, 2), 40));
  run_all(200);
  EXPECT_EQ(calls, 40u);
  EXPECT_EQ(first.ids[0], model_->continuation(text(50, 1), 40));
  EXPECT_EQ(other->ids[0], model_->continuation(text(50, 2), 40));
}

TEST_F(AfterSampling, WhatIsPutInPlaceIsTheText) {
  for (const double right : {-1.0, 0.0, 1.0}) {  // of guesses; -1: none are made
    SpeculationOptions speculation;
    if (right >= 0) speculation = {scripted(right, 1000), 4};
    start({.logit_rows = 64, .gives_logits = true}, 0, nullptr, speculation);
    std::int64_t left_to_the_model = 0;
    model_->on_step = [&](std::span<const StepItem> items) {
      for (const StepItem& item : items) {
        if (item.sequence->ids.front() == text(50, 1).front()) {
          EXPECT_EQ(item.sampling, nullptr);  // a model that can choose must not
        } else {
          left_to_the_model += item.sampling != nullptr ? 1 : 0;
        }
      }
    };
    Request hooked = request(text(50, 1), 40);
    std::vector<std::vector<std::int32_t>> seen(2);
    hooked.sampling.n = 2;
    hooked.after_sampling = [&](const SampledToken& token) {
      EXPECT_EQ(token.position, static_cast<std::int64_t>(token.history.size()));
      EXPECT_EQ(token.id, model_->follows(token.history));
      EXPECT_EQ(token.probability, 1);  // greedy
      seen[static_cast<std::size_t>(token.choice)].push_back(other(token));
      return seen[static_cast<std::size_t>(token.choice)].back();
    };
    Asked& first = ask(hooked);
    Asked& second = ask(request(text(50, 2), 40));
    run_all(200);
    for (std::size_t choice = 0; choice < 2; ++choice) {
      EXPECT_EQ(first.ids[choice], expected(text(50, 1), 40));
      EXPECT_EQ(seen[choice], first.ids[choice]);  // each token once, and no other
    }
    EXPECT_EQ(second.ids[0], model_->continuation(text(50, 2), 40));
    EXPECT_GT(left_to_the_model, 0);
    expect_no_leak();
  }
}

TEST_F(AfterSampling, AnEndThatIsPutInPlaceEnds) {
  start({.gives_logits = true});
  Request hooked = request(text(50, 1), 40);
  hooked.ignore_end_tokens = false;
  hooked.sampling.logit_bias = {{kEnd, -100}};
  hooked.after_sampling = [](const SampledToken& token) {
    return token.position == 60 ? kEnd : token.id;
  };
  Asked& asked = ask(hooked);
  run_all(100);
  EXPECT_EQ(asked.reasons[0], FinishReason::kEndToken);
  EXPECT_EQ(asked.ids[0].size(), 11u);
}

TEST_F(AfterSampling, LogProbabilitiesAreThoseOfTheTokenInPlace) {
  start({.gives_logits = true});
  Request hooked = request(text(50, 1), 10);
  hooked.sampling.logprobs = true;
  hooked.after_sampling = other;
  Asked& asked = ask(hooked);
  run_all(100);
  ASSERT_EQ(asked.logprobs[0].size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(asked.logprobs[0][i].token.id, asked.ids[0][i]);
    EXPECT_EQ(asked.logprobs[0][i].token.logprob < -1, (50 + i) % 3 == 0);
  }
}

// The model's own row, and the distribution that the chain has drawn from; with guidance, too.
TEST_F(AfterSampling, ItSeesTheRowAndWhatTheTokenWasDrawnFrom) {
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplingParams few;
  few.temperature = 8;
  few.top_k = 12;
  few.top_p = 0.9;
  SamplingParams guided = few;
  guided.cfg_scale = 1.5;
  SamplingParams all = SamplingParams::plain();
  all.temperature = 8;
  all.banned_tokens = {5};
  std::size_t most = 0;
  for (SamplingParams params : {greedy, few, guided, all}) {
    params.max_tokens = 12;
    params.seed = 3;
    std::vector<std::vector<std::int32_t>> texts;
    for (const bool shows : {false, true}) {
      start({.gives_logits = true});
      Request hooked = request(text(50, 1), 12);
      hooked.sampling = params;
      hooked.hook_candidates = shows;
      hooked.after_sampling = [&](const SampledToken& token) {
        EXPECT_TRUE(std::ranges::equal(token.logits, model_->row(token.history)));
        EXPECT_EQ(token.candidates.empty(), !shows);
        if (!shows) return token.id;
        most = std::max(most, token.candidates.size());
        double sum = 0;
        double own = 0;
        for (std::size_t i = 0; i < token.candidates.size(); ++i) {
          const TokenProbability& one = token.candidates[i];
          if (i > 0) {
            EXPECT_LT(token.candidates[i - 1].id, one.id);
          }
          sum += one.probability;
          if (one.id == token.id) own = one.probability;
        }
        EXPECT_NEAR(sum, 1, 1e-9);
        EXPECT_NEAR(own, token.probability, 1e-6);
        if (params.cfg_scale != 1) return token.id;
        SampleRow expected;
        SamplerChain(params).find_distribution({.logits = token.logits, .history = token.history},
                                               expected);
        EXPECT_EQ(token.candidates.size(), expected.size());
        for (std::size_t i = 0; i < std::min(expected.size(), token.candidates.size()); ++i) {
          EXPECT_EQ(token.candidates[i].id, expected.ids[i]);
        }
        return token.id;
      };
      const Asked& asked = ask(hooked);
      run_all(200);
      EXPECT_EQ(asked.reasons[0], FinishReason::kMaxTokens) << asked.errors[0];
      texts.push_back(asked.ids[0]);
    }
    EXPECT_EQ(texts[0], texts[1]);  // to be shown changes nothing
  }
  EXPECT_EQ(most, 999u);  // all but the banned one
}

TEST_F(AfterSampling, WhatItThrowsEndsItsRequestAlone) {
  struct Case {
    TokenHook hook;
    const char* message;
  };
  const std::vector<Case> cases{
      {[](const SampledToken&) -> std::int32_t { throw std::runtime_error("no\nmore"); },
       "after_sampling: no more"},
      {[](const SampledToken&) -> std::int32_t { fail(ErrorCode::kLimit, "enough"); }, "enough"},
      {[](const SampledToken&) -> std::int32_t { throw std::bad_alloc(); },
       "out of memory while the request was worked on"},
      {[](const SampledToken&) { return -1; },
       "after_sampling has returned token -1 at position 54, the model's tokens are 0 … 999"},
      {[](const SampledToken&) { return 1000; }, "after_sampling has returned token 1000"}};
  for (const Case& c : cases) {
    start({.gives_logits = true});
    Request hooked = request(text(50, 1), 20);
    hooked.after_sampling = [&](const SampledToken& token) {
      return token.position < 54 ? token.id : c.hook(token);
    };
    Asked& first = ask(hooked);
    Asked& second = ask(request(text(50, 2), 20));
    run_all(100);
    EXPECT_EQ(first.reasons[0], FinishReason::kError);
    EXPECT_EQ(first.errors[0].find(c.message), 0u) << first.errors[0];
    EXPECT_EQ(first.ids[0].size(), 4u);
    EXPECT_EQ(second.ids[0], model_->continuation(text(50, 2), 20));
    expect_no_leak();
  }
}

// Threads choose the rows of many answers, but a hook is called where the engine runs.
TEST(RowSampler, HooksRunOnTheCallersThread) {
  ThreadPool threads(4);
  RowSampler sampler(&threads);
  std::vector<float> logits(40'000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 1000);
  SamplingParams params;
  params.temperature = 0;
  std::vector<SamplerChain> chains;
  for (int i = 0; i < 16; ++i) chains.emplace_back(params);
  int calls = 0;
  const auto caller = std::this_thread::get_id();
  const TokenHook hook = [&](const SampledToken& token) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    ++calls;
    return token.id + 1;
  };
  for (int round = 0; round < 20; ++round) {
    std::vector<RowTask> tasks(16);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      tasks[i].logits = logits;
      tasks[i].sampler = &chains[i];
      if (i % 2 == 1) tasks[i].hook = &hook;
    }
    sampler.run(tasks);
    for (std::size_t i = 0; i < tasks.size(); ++i) EXPECT_EQ(tasks[i].id, i % 2 == 1 ? 1000 : 999);
  }
  EXPECT_EQ(calls, 160);
}

// Behind a guess a row counts only where the token that was put in place is the guess.
TEST(RowSampler, GuessesAreComparedWithWhatIsPutInPlace) {
  RowSampler sampler(nullptr);
  const std::vector<float> logits{0, 3, 1, 2};
  SamplerChain chain(SamplingParams::plain());
  const TokenHook hook = [](const SampledToken&) { return 2; };
  for (const std::int32_t guess : {1, 2}) {
    std::vector<RowTask> tasks(2);
    for (RowTask& task : tasks) {
      task.logits = logits;
      task.sampler = &chain;
      task.hook = &hook;
    }
    tasks[1].follows = guess;
    sampler.run(tasks);
    EXPECT_EQ(tasks[0].id, 2);
    EXPECT_EQ(tasks[1].id, guess == 2 ? 2 : -1);
  }
}

}  // namespace
}  // namespace bl
