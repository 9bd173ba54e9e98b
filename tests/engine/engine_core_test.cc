#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "core_test.h"
#include "engine/event_stream.h"
#include "ops/kv_layout.h"

namespace bl {
namespace {

using test::CoreTest;
using test::FakeModel;

TEST_F(CoreTest, ManyRequestsShareSteps) {
  start({});
  for (std::int32_t i = 0; i < 16; ++i) ask(request(text(20 + 3 * i, i), 40));
  run_all(60);
  for (const Asked& asked : asked_) {
    EXPECT_EQ(asked.ids[0], model_->continuation(asked.open->request.prompt, 40));
    EXPECT_EQ(asked.reasons[0], FinishReason::kMaxTokens);
  }
  // Every prompt in the first step or two, then one step a token for all.
  EXPECT_LE(core_->stats().steps, 43);
  expect_no_leak();
}

TEST_F(CoreTest, LongPromptsAreCutAndDecodingGoesOnBesideThem) {
  start({.step_tokens = 64});
  Asked& first = ask(request(text(10, 1), 100));
  step();
  Asked& second = ask(request(text(1000, 2), 5));
  for (int i = 0; i < 5; ++i) step();
  read(first);
  read(second);
  EXPECT_EQ(first.ids[0].size(), 6u);
  EXPECT_TRUE(second.ids[0].empty());
  EXPECT_EQ(model_->largest_step, 64);
  run_all(200);
  EXPECT_EQ(first.ids[0], model_->continuation(text(10, 1), 100));
  EXPECT_EQ(second.ids[0], model_->continuation(text(1000, 2), 5));
  EXPECT_EQ(second.usages[0].prefill_tokens, 1000);
}

TEST_F(CoreTest, SharedPrefixesAreComputedOnce) {
  start({});
  std::vector<std::int32_t> prompt = text(1000, 5);
  ask(request(prompt, 3));
  run_all(20);
  EXPECT_EQ(model_->computed, 1002);
  // The same beginning, whole pages and a part of one.
  std::vector<std::int32_t> other = prompt;
  other.resize(900);
  other.push_back(1);
  other.push_back(2);
  Asked& second = ask(request(other, 3));
  run_all(20);
  EXPECT_EQ(second.usages[0].cached_tokens, 900);
  EXPECT_EQ(second.usages[0].cached_pages, 3);
  EXPECT_EQ(second.ids[0], model_->continuation(other, 3));
  EXPECT_EQ(core_->stats().cache.pages_shared, 3);
  EXPECT_EQ(core_->stats().cache.pages_copied, 1);
  // Another salt sees nothing of it.
  Request salted = request(prompt, 3);
  salted.cache_salt = "other";
  Asked& third = ask(salted);
  run_all(20);
  EXPECT_EQ(third.usages[0].cached_tokens, 0);
  EXPECT_EQ(third.usages[0].cached_pages, 0);
  expect_no_leak();
}

TEST_F(CoreTest, ChoicesShareTheirPrompt) {
  start({});
  Request wanted = request(text(700, 8), 30);
  wanted.sampling.n = 6;
  Asked& asked = ask(wanted);
  run_all(60);
  const auto expected = model_->continuation(wanted.prompt, 30);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(asked.ids[i], expected);
    EXPECT_EQ(asked.usages[i].cached_tokens, i == 0 ? 0 : 699);
  }
  EXPECT_EQ(model_->computed, 700 + 5 + 6 * 29);
  expect_no_leak();
}

TEST_F(CoreTest, WithoutPagesTheYoungestGivesWay) {
  start({.context = 2048, .pages = 8});
  for (std::int32_t i = 0; i < 6; ++i) ask(request(text(200, i), 700));
  run_all(20000);
  for (const Asked& asked : asked_) {
    EXPECT_EQ(asked.ids[0], model_->continuation(asked.open->request.prompt, 700));
  }
  EXPECT_GT(core_->stats().preemptions, 0);
  EXPECT_EQ(asked_.front().usages[0].preemptions, 0);
  expect_no_leak();
}

TEST_F(CoreTest, CancellingFreesPagesWithinAStep) {
  start({});
  Asked& first = ask(request(text(600, 1), 500));
  for (int i = 0; i < 5; ++i) step();
  EXPECT_LT(core_->stats().free_pages + core_->stats().idle_pages, core_->stats().pages);
  first.open->stream->cancel();
  step();
  read(first);
  EXPECT_EQ(first.reasons[0], FinishReason::kCancelled);
  expect_no_leak();
}

TEST_F(CoreTest, ASlowReaderPausesHimselfAlone) { expect_slow_reader_pauses({}, 300, 400); }

TEST_F(CoreTest, ManySlowReadersPauseThemselvesAlone) {
  start({}, 1);
  for (int i = 0; i < 30; ++i) {
    Request slow = request(text(30, i), 40);
    slow.unread_tokens = 5;
    ask(slow);
  }
  Asked& quick = ask(request(text(30, 50), 40));
  for (int i = 0; i < 600 && !quick.over(); ++i) {
    step();
    read(quick);
  }
  EXPECT_EQ(quick.ids[0], model_->continuation(text(30, 50), 40));
}

TEST_F(CoreTest, DamagedLogitsEndTheirRequestAlone) {
  expect_damage_ends_one({.gives_logits = true}, 4, 20, 60);
}

TEST_F(CoreTest, AFailedStepEndsWhoWasInIt) { expect_failure_ends_one({}, 3, 3); }

TEST_F(CoreTest, DeadlinesEndWaitingAndRunningRequests) {
  start({}, 1);
  Asked& first = ask(request(text(40, 3), 20));
  Asked& second = ask(request(text(40, 4), 20));
  step();
  first.open->deadline = EngineClock::now();
  second.open->deadline = EngineClock::now();
  step();
  read(first);
  read(second);
  EXPECT_EQ(first.reasons[0], FinishReason::kDeadline);
  EXPECT_EQ(second.reasons[0], FinishReason::kDeadline);
  expect_no_leak();
}

TEST_F(CoreTest, PriorityGoesFirst) {
  start({}, 1);
  Asked& first = ask(request(text(40, 3), 200));
  for (int i = 0; i < 10; ++i) step();
  Asked& second = ask(request(text(40, 4), 10));
  Request urgent = request(text(40, 5), 10);
  urgent.priority = 5;
  Asked& third = ask(urgent);
  for (int i = 0; i < 12; ++i) step();
  read(first);
  read(second);
  read(third);
  EXPECT_TRUE(third.over());
  EXPECT_FALSE(first.over());
  EXPECT_TRUE(second.ids[0].empty());
  run_all(500);
  EXPECT_EQ(first.ids[0], model_->continuation(text(40, 3), 200));
  EXPECT_EQ(first.usages[0].preemptions, 1);
}

// Small requests go before a large one that waits for pages, as often as it lets them.
TEST_F(CoreTest, ALargeRequestSaysHowOftenItIsPassedOver) {
  const auto admitted_before = [this](const Request& large, std::size_t waiting) {
    start({.context = 2048, .pages = 8});
    Asked& first = ask(request(text(1000, 1), 200));
    step();
    Asked& second = ask(large);
    std::vector<Asked*> small;
    for (std::size_t i = 0; i < waiting; ++i) {
      step();
      small.push_back(&ask(request(text(40, static_cast<std::int32_t>(10 + i)), 2)));
    }
    for (int i = 0; i < 100; ++i) step();
    const auto count = std::count_if(small.begin(), small.end(), [this](Asked* asked) {
      read(*asked);
      return asked->over();
    });
    read(first);
    read(second);
    EXPECT_FALSE(first.over());
    EXPECT_TRUE(second.ids[0].empty());
    run_all(1000);
    EXPECT_EQ(second.ids[0], model_->continuation(large.prompt, 10));
    return count;
  };
  Request large = request(text(1500, 2), 10);
  EXPECT_EQ(admitted_before(large, 12), 4);
  large.max_skips = 0;
  EXPECT_EQ(admitted_before(large, 3), 0);
  large.max_skips = 7;
  EXPECT_EQ(admitted_before(large, 12), 7);
}

TEST_F(CoreTest, LogprobsOfPromptAndAnswer) {
  start({.step_tokens = 64, .logit_rows = 8, .gives_logits = true});
  Request wanted = request(text(100, 3), 5);
  wanted.sampling.prompt_logprobs = 2;
  wanted.sampling.logprobs = true;
  Asked& asked = ask(wanted);
  Asked& other = ask(request(text(100, 4), 5));
  run_all(60);
  EXPECT_EQ(asked.prompt_rows, 99u);
  EXPECT_EQ(asked.ids[0], model_->continuation(wanted.prompt, 5));
  EXPECT_EQ(other.ids[0], model_->continuation(text(100, 4), 5));
}

TEST_F(CoreTest, PinnedPromptsStay) {
  start({.context = 2048, .pages = 12});
  Request pinned = request(text(600, 1), 2);
  pinned.pin = "system";
  ask(pinned);
  run_all(10);
  for (std::int32_t i = 2; i < 10; ++i) {
    ask(request(text(1500, i), 2));
    run_all(20);
  }
  Asked& again = ask(request(text(600, 1), 2));
  run_all(10);
  EXPECT_GE(again.usages[0].cached_tokens, 512);
  // Too much for what pins leave: an error, not a standstill.
  Asked& large = ask(request(text(2047, 99), 1));
  run_all(20);
  EXPECT_FALSE(large.reasons[0] == FinishReason::kError);
  core_->unpin("system");
  expect_no_leak();
}

TEST_F(CoreTest, PinsHaveNamesAndBounds) {
  start({.context = 3072, .pages = 12});
  EXPECT_FALSE(core_->unpin("nobody"));
  const auto pin = [&](std::size_t tokens, std::int32_t seed, const char* name) -> Asked& {
    Request pinned = request(text(tokens, seed), 2);
    pinned.pin = name;
    Asked& asked = ask(pinned);
    run_all(50);
    return asked;
  };
  pin(600, 1, "a");
  EXPECT_EQ(core_->stats().pinned_pages, 2);
  // The same beginning under another name costs nothing.
  pin(800, 1, "b");
  EXPECT_EQ(core_->stats().pinned_pages, 3);
  // The same name again: the later one.
  pin(300, 2, "a");
  EXPECT_EQ(core_->stats().pinned_pages, 4);
  // Nine pages may be pinned: this one would make it ten.
  Asked& large = pin(1600, 3, "c");
  EXPECT_EQ(large.reasons[0], FinishReason::kError);
  EXPECT_EQ(large.errors[0],
            "the prompt cannot be pinned as 'c': with it 10 of the cache's 12 pages would be "
            "pinned, and at most 9 may be");
  EXPECT_EQ(core_->stats().pinned_pages, 4);
  EXPECT_FALSE(core_->unpin("c"));
  EXPECT_TRUE(core_->unpin("b"));
  EXPECT_EQ(core_->stats().pinned_pages, 1);
  EXPECT_TRUE(core_->unpin("a"));
  EXPECT_FALSE(core_->unpin("a"));
  expect_no_leak();
}

// One page for all of them.
TEST_F(CoreTest, PinsOfOnePromptAreBounded) {
  start({});
  const auto pin = [&](std::int64_t i) -> Asked& {
    asked_.clear();
    Request pinned = request(text(260, 1), 1);
    pinned.pin = fmt::format("name{}", i);
    Asked& asked = ask(pinned);
    run_all(20);
    return asked;
  };
  for (std::int64_t i = 0; i < PinnedPrefixes::kMostNames; ++i) {
    ASSERT_EQ(pin(i).reasons[0], FinishReason::kMaxTokens);
  }
  EXPECT_EQ(core_->stats().pinned_pages, 1);
  const Asked& another = pin(5000);
  EXPECT_EQ(another.reasons[0], FinishReason::kError);
  EXPECT_EQ(another.codes[0], ErrorCode::kLimit);
  EXPECT_EQ(another.errors[0],
            "the prompt cannot be pinned as 'name5000': 1024 prompts are pinned, and no more may "
            "be; unpin one");
  EXPECT_EQ(pin(7).reasons[0], FinishReason::kMaxTokens);  // the same name again
  EXPECT_TRUE(core_->unpin("name3"));
  EXPECT_EQ(pin(5000).reasons[0], FinishReason::kMaxTokens);
}

TEST_F(CoreTest, EvictedPagesComeBackFromTheHost) {
  host_pages_ = 20;
  start({.context = 2048, .pages = 8});
  const auto prompt = text(1900, 1);
  ask(request(prompt, 2));
  run_all(20);
  ask(request(text(1900, 2), 2));
  run_all(20);
  EXPECT_GE(core_->stats().cache.pages_stored, 7);
  const std::int64_t before = model_->computed;
  Asked& again = ask(request(prompt, 20));
  run_all(60);
  EXPECT_EQ(again.usages[0].cached_tokens, 1899);
  EXPECT_EQ(model_->computed - before, 20);
  EXPECT_EQ(again.ids[0], model_->continuation(prompt, 20));
  EXPECT_GE(core_->stats().cache.pages_restored, 7);
  expect_no_leak();
}

TEST_F(CoreTest, WhoGivesWayIsSwappedOutAndIn) {
  const auto computed = [&](std::size_t host_pages) {
    asked_.clear();
    host_pages_ = host_pages;
    start({.context = 2048, .pages = 8});
    for (std::int32_t i = 0; i < 6; ++i) ask(request(text(200, i), 700));
    run_all(20000);
    for (const Asked& asked : asked_) {
      EXPECT_EQ(asked.ids[0], model_->continuation(asked.open->request.prompt, 700));
    }
    EXPECT_GT(core_->stats().preemptions, 0);
    expect_no_leak();
    return model_->computed;
  };
  const std::int64_t tokens = 6 * 899;
  EXPECT_GT(computed(0), tokens + 500);
  // Nothing is computed twice.
  EXPECT_EQ(computed(64), tokens);
  // A small one helps a little, and does no harm.
  EXPECT_LT(computed(6), computed(0));
}

TEST(CacheTiers, PagesOfAStepAreMovedInABlink) {
  EXPECT_EQ(pages_of_a_step(1 << 20, {}), 1);
  EXPECT_EQ(pages_of_a_step(1000, {.copy_bytes = 1e6, .prefill_tokens = 0}), 20);
  EXPECT_EQ(pages_of_a_step(1 << 30, {.copy_bytes = 1e6, .prefill_tokens = 0}), 1);
}

TEST_F(CoreTest, TheBestOfSeveral) {
  start({.gives_logits = true});
  Request wanted = request(text(300, 3), 8);
  wanted.sampling.temperature = 30;  // anything but what the model says
  wanted.sampling.top_k = 0;
  wanted.sampling.top_p = 1;
  wanted.sampling.logprobs = true;
  wanted.sampling.n = 6;
  Asked& all = ask(wanted);
  run_all(40);
  wanted.sampling.n = 2;
  wanted.sampling.best_of = 6;
  Asked& best = ask(wanted);
  run_all(40);
  const auto mean = [](const std::vector<TokenLogprobs>& logprobs) {
    double sum = 0;
    for (const TokenLogprobs& one : logprobs) sum += static_cast<double>(one.token.logprob);
    return sum / static_cast<double>(logprobs.size());
  };
  std::vector<std::size_t> order{0, 1, 2, 3, 4, 5};
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return mean(all.logprobs[a]) > mean(all.logprobs[b]);
  });
  EXPECT_NE(all.ids[order[0]], all.ids[order[5]]);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(best.ids[i], all.ids[order[i]]);
    EXPECT_EQ(best.logprobs[i].size(), 8u);
    EXPECT_EQ(best.reasons[i], FinishReason::kMaxTokens);
  }
  expect_no_leak();
}

// Whichever is the best, its usage says what the request's prompt has cost.
TEST_F(CoreTest, TheBestTellsOfThePrompt) {
  std::int64_t others = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    start({.gives_logits = true});
    Request wanted = request(text(300, 3), 8);
    wanted.sampling.temperature = 30;
    wanted.sampling.seed = seed;
    wanted.sampling.n = 4;
    Asked& all = ask(wanted);
    run_all(40);
    wanted.sampling.n = 1;
    wanted.sampling.best_of = 4;
    wanted.cache_salt = "fresh";
    for (const std::int64_t cached : {0, 299}) {
      Asked& best = ask(wanted);
      run_all(40);
      EXPECT_EQ(best.usages[0].cached_tokens, cached);
      EXPECT_EQ(best.usages[0].cached_pages, cached / kPageSlots);
      EXPECT_EQ(best.usages[0].prefill_tokens, 300 - cached);
      others += best.ids[0] != all.ids[0] ? 1 : 0;
    }
  }
  EXPECT_GT(others, 0);
}

TEST_F(CoreTest, LogprobsBehindTheChain) {
  start({.gives_logits = true});
  Request wanted = request(text(30, 3), 4);
  wanted.sampling.temperature = 1;
  wanted.sampling.top_k = 2;
  wanted.sampling.top_p = 1;
  wanted.sampling.logprobs = true;
  wanted.sampling.top_logprobs = 5;
  Asked& raw = ask(wanted);
  wanted.sampling.logprobs_after = true;
  Asked& after = ask(wanted);
  run_all(40);
  EXPECT_EQ(raw.ids[0], after.ids[0]);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(raw.logprobs[0][i].best.size(), 5u);
    ASSERT_EQ(after.logprobs[0][i].best.size(), 2u);  // the others are cut
    EXPECT_GT(after.logprobs[0][i].token.logprob, raw.logprobs[0][i].token.logprob);
  }
}

TEST_F(CoreTest, ALoopEndsWhereThatIsAsked) {
  // Two tokens and a function of all of the text: no loop for long. A bias makes one.
  start({.gives_logits = true});
  Request wanted = request(text(30, 3), 400);
  wanted.sampling.logit_bias = {{5, 1000.0}};
  wanted.sampling.loop_detect_window = 20;
  Asked& asked = ask(wanted);
  run_all(500);
  EXPECT_EQ(asked.reasons[0], FinishReason::kLoop);
  EXPECT_EQ(asked.ids[0], std::vector<std::int32_t>(20, 5));
}

// The step of the row has filled two pages, of whose content nobody knows then.
TEST_F(CoreTest, ABrokenRowLeavesItsPagesToNobody) {
  start({});
  bool broken = true;
  model_->is_damaged = [&](std::span<const std::int32_t> ids) {
    return broken && ids.size() == 512;
  };
  Asked& first = ask(request(text(512, 1), 4));
  run_all(20);
  EXPECT_EQ(first.reasons[0], FinishReason::kError);
  EXPECT_EQ(core_->cache().index().size(), 0);
  broken = false;
  Asked& again = ask(request(text(512, 1), 4));
  run_all(20);
  EXPECT_EQ(again.usages[0].cached_tokens, 0);
  EXPECT_EQ(again.ids[0], model_->continuation(text(512, 1), 4));
  expect_no_leak();
}

// Computed by two at once, a page stays once; a pin holds that one.
TEST_F(CoreTest, APinHoldsWhatOthersFind) {
  start({.step_tokens = 2048});
  Request pinned = request(text(600, 2), 4);
  ask(pinned);
  pinned.pin = "system";
  ask(pinned);
  run_all(400);
  const PinnedPrefixes::Pin* pin = core_->pins().find("system");
  ASSERT_NE(pin, nullptr);
  ASSERT_EQ(pin->pages.pages().size(), 2u);
  const PrefixIndex& index = core_->cache().index();
  for (const std::int32_t page : pin->pages.pages()) {
    EXPECT_NE(index.node_of(page), PrefixIndex::kNone);
  }
}

}  // namespace
}  // namespace bl
