// The engine among threads: whoever submits, reads, cancels or goes away, from wherever. Runs under
// the thread sanitizer.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"
#include "fake_model.h"
#include "scripted_draft.h"

namespace bl {
namespace {

using test::FakeModel;
using namespace std::chrono_literals;

Request request(std::int32_t seed, std::size_t tokens, std::int64_t max_tokens) {
  Request request;
  for (std::size_t i = 0; i < tokens; ++i) {
    request.prompt.push_back(
        static_cast<std::int32_t>((i * 13 + static_cast<std::size_t>(seed) * 7) % 900));
  }
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  return request;
}

std::unique_ptr<FakeModel> fake(FakeModel::Options options = {}) {
  return std::make_unique<FakeModel>(options);
}

// Waits for what another thread does on its own; false where it does not come. The limit is for an
// engine that hangs: a busy machine may let one wait for seconds.
template <class Condition>
bool eventually(Condition&& holds) {
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

// With and without guesses.
class EngineUsers : public testing::TestWithParam<bool> {};

TEST_P(EngineUsers, WriteReadAndLeave) {
  const FakeModel oracle({});
  EngineOptions options;
  options.running = 6;
  if (GetParam()) {
    options.speculation = {
        std::make_shared<test::ScriptedDraft>(
            [&](std::span<const std::int32_t> ids) { return oracle.follows(ids); }, 1000, 0.7, 1),
        4};
  }
  Engine engine(fake({.step_tokens = 128, .logit_rows = GetParam() ? 18 : 6, .pages = 12}), nullptr,
                {}, std::move(options));
  std::atomic<int> right{0};
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&, user] {
      std::mt19937 random(static_cast<unsigned>(user));
      for (int i = 0; i < 25; ++i) {
        Request wanted = request(static_cast<std::int32_t>(random() % 5), 1 + random() % 300,
                                 1 + static_cast<std::int64_t>(random() % 30));
        wanted.unread_tokens = 1 + static_cast<std::int64_t>(random() % 8);
        RequestHandle handle = engine.submit(wanted);
        const auto expected = oracle.continuation(wanted.prompt, wanted.sampling.max_tokens);
        switch (random() % 4) {
          case 0:  // reads on, then loses interest
            handle.next(1ms);
            break;
          case 1: {  // cancels from elsewhere
            std::thread other([&] { handle.cancel(); });
            const Answer answer = handle.wait().front();
            other.join();
            EXPECT_TRUE(std::equal(answer.ids.begin(), answer.ids.end(), expected.begin()));
            break;
          }
          default: {
            const Answer answer = handle.wait().front();
            EXPECT_EQ(answer.ids, expected) << answer.error;
            ++right;
          }
        }
        engine.stats();
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_GT(right, 20);
  // What was left behind is over within a step or two.
  EngineStats stats;
  EXPECT_TRUE(eventually([&] {
    stats = engine.settled_stats();
    return stats.running + stats.waiting == 0;
  }));
  EXPECT_EQ(stats.free_pages + stats.idle_pages, stats.pages);
}

INSTANTIATE_TEST_SUITE_P(EngineThreads, EngineUsers, testing::Bool());

TEST(EngineThreads, ASlowReaderAndAThrowingOneStallNobody) {
  const FakeModel oracle({});
  Engine engine(fake(), nullptr, {});
  Request slow = request(1, 20, 1000);
  slow.unread_tokens = 5;
  RequestHandle sleeper = engine.submit(slow);
  const auto throwing = [&] {
    RequestHandle handle = engine.submit(request(2, 20, 1000));
    while (handle.next()) throw std::runtime_error("not my day");
  };
  EXPECT_THROW(throwing(), std::runtime_error);
  const Request quick = request(3, 20, 1000);
  EXPECT_EQ(engine.submit(quick).wait().front().ids, oracle.continuation(quick.prompt, 1000));
  EXPECT_EQ(sleeper.wait().front().ids, oracle.continuation(slow.prompt, 1000));
}

TEST(EngineThreads, AFullQueueRefuses) {
  Engine engine(fake(), nullptr, {}, {.requests = 2});
  Request paused = request(1, 20, 1000);
  paused.unread_tokens = 1;
  std::vector<RequestHandle> handles;
  handles.push_back(engine.submit(paused));
  handles.push_back(engine.submit(paused));
  EXPECT_FALSE(engine.try_submit(paused).has_value());
  try {
    engine.submit(paused);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kLimit);
    EXPECT_NE(std::string(error.what()).find("queue is full"), std::string::npos);
  }
  handles[0].cancel();
  EXPECT_EQ(handles[0].wait().front().reason, FinishReason::kCancelled);
  EXPECT_TRUE(eventually([&] { return engine.try_submit(paused).has_value(); }));
}

// A few requests of many answers are as much to hold as many of one.
TEST(EngineThreads, AQueueOfLongPromptsIsFull) {
  Engine engine(fake(), nullptr, {}, {.prompt_ids = 1000});
  Request paused = request(1, 100, 1000);
  paused.unread_tokens = 1;
  paused.sampling.n = 20;
  std::vector<RequestHandle> handles;
  handles.push_back(engine.submit(paused));  // alone it may be longer
  EXPECT_FALSE(engine.try_submit(request(2, 10, 5)).has_value());
  try {
    engine.submit(request(2, 10, 5));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kLimit);
    EXPECT_NE(std::string(error.what()).find("2000 tokens, 10 more"), std::string::npos)
        << error.what();
  }
  handles[0].cancel();
  handles[0].wait();
  paused.sampling.n = 9;
  EXPECT_TRUE(eventually([&] { return engine.try_submit(paused).has_value(); }));
  EXPECT_EQ(engine.submit(request(2, 100, 5)).wait().front().ids.size(), 5u);
}

// Also one that has ended before it was ever in a step.
TEST(EngineThreads, WhatIsOverLeavesTheQueue) {
  Engine engine(fake(), nullptr, {}, {.prompt_ids = 1000});
  engine.settled_stats();
  std::this_thread::sleep_for(20ms);  // its thread waits for something to come
  Request late = request(1, 100, 5);
  late.sampling.n = 20;
  late.deadline = 1e-9;
  const std::vector<Answer> answers = engine.submit(late).wait();
  EXPECT_EQ(answers.front().reason, FinishReason::kDeadline);
  std::optional<RequestHandle> next;
  ASSERT_TRUE(
      eventually([&] { return (next = engine.try_submit(request(2, 10, 5))).has_value(); }));
  EXPECT_EQ(next->wait().front().ids.size(), 5u);
}

TEST(EngineThreads, EverythingIsCancelledAtOnce) {
  const FakeModel oracle({});
  Engine engine(fake(), nullptr, {}, {.running = 2});
  std::vector<RequestHandle> handles;
  for (std::int32_t i = 0; i < 10; ++i) {
    Request paused = request(i, 20, 1000);
    paused.unread_tokens = 1;
    handles.push_back(engine.submit(paused));
  }
  engine.cancel_all();
  for (RequestHandle& handle : handles) {
    EXPECT_EQ(handle.wait().front().reason, FinishReason::kCancelled);
  }
  const Request after = request(1, 20, 30);
  EXPECT_EQ(engine.submit(after).wait().front().ids, oracle.continuation(after.prompt, 30));
}

TEST(EngineThreads, AWarmEngineHasMadeSteps) {
  Engine engine(fake(), nullptr, {});
  engine.warm_up();
  const EngineStats stats = engine.settled_stats();
  EXPECT_GE(stats.prefill_tokens + stats.decode_tokens, 31);
  auto broken = fake();
  broken->on_step = [](std::span<const StepItem>) {
    fail(ErrorCode::kDevice, "the card has left");
  };
  Engine cold(std::move(broken), nullptr, {});
  EXPECT_THROW(cold.warm_up(), Error);
}

TEST(EngineThreads, DeadlinesComeEvenWhenNothingRuns) {
  Engine engine(fake(), nullptr, {}, {.requests = 1});
  Request paused = request(1, 20, 1000);
  paused.unread_tokens = 1;
  paused.deadline = 0.05;
  RequestHandle handle = engine.submit(paused);
  // Nobody reads, so the engine sleeps until the deadline; what it refuses does not wake it.
  EXPECT_TRUE(eventually([&] { return engine.try_submit(paused).has_value(); }));
  const Answer answer = handle.wait().front();
  EXPECT_EQ(answer.reason, FinishReason::kDeadline);
  EXPECT_LE(answer.ids.size(), 1u);
}

// Statistics that are asked for behind a request have it, also where both come in the same step.
TEST(EngineThreads, SettledStatisticsHaveWhatWasSubmittedBefore) {
  auto model = fake();
  std::promise<void> begun;
  std::promise<void> go_on;
  model->on_step = [&, first = true](std::span<const StepItem>) mutable {
    if (!std::exchange(first, false)) return;
    begun.set_value();
    go_on.get_future().wait();
  };
  Engine engine(std::move(model), nullptr, {});
  Request paused = request(1, 20, 1000);
  paused.unread_tokens = 1;
  const RequestHandle one = engine.submit(paused);
  begun.get_future().wait();
  const RequestHandle other = engine.submit(paused);
  auto asking = std::async(std::launch::async, [&] { return engine.settled_stats(); });
  std::this_thread::sleep_for(50ms);  // has asked by then, mostly
  go_on.set_value();
  const EngineStats stats = asking.get();
  EXPECT_EQ(stats.running + stats.waiting, 2);
}

TEST(EngineThreads, ShutdownEndsWhatIsOpen) {
  std::optional<RequestHandle> handle;
  {
    Engine engine(fake(), nullptr, {});
    Request paused = request(1, 20, 1000);
    paused.unread_tokens = 1;
    handle = engine.submit(paused);
  }
  const Answer answer = handle->wait().front();
  EXPECT_EQ(answer.reason, FinishReason::kError);
  EXPECT_EQ(answer.error, "the engine was shut down");
  EXPECT_TRUE(handle->over());
}

}  // namespace
}  // namespace bl
