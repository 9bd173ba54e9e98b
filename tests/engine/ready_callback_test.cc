// Readers that are called when there is something to read: one thread for many requests. Runs under
// the thread sanitizer.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/event_stream.h"
#include "fake_model.h"

namespace bl {
namespace {

using test::FakeModel;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// A stream without an engine, and how often its reader was called.
class ReadyStream : public testing::Test {
 protected:
  bool count_calls() {
    return stream_.set_ready_callback([this] { ++calls_; });
  }
  void end(std::int32_t choice) {
    stream_.push({.choice = choice, .finish = FinishReason::kMaxTokens});
  }
  // The number of events that were there.
  int take_all() {
    int events = 0;
    while (stream_.next(Clock::now())) ++events;
    return events;
  }
  EventStream stream_{2, std::make_shared<Waker>()};
  int calls_ = 0;
};

TEST_F(ReadyStream, IsCalledOnceUntilEverythingHasBeenTaken) {
  EXPECT_FALSE(count_calls());
  stream_.push_token(0, 1, "a");
  EXPECT_EQ(calls_, 1);
  stream_.push_token(0, 2, "b");
  stream_.push({.choice = 1, .text = "c", .ids = {3}});
  EXPECT_EQ(calls_, 1);
  // One choice's events are taken, and the other's are not.
  EXPECT_TRUE(stream_.next(Clock::now()).has_value());
  stream_.push_token(0, 4, "d");
  EXPECT_EQ(calls_, 1);
  EXPECT_EQ(take_all(), 2);
  stream_.push_token(1, 5, "e");
  EXPECT_EQ(calls_, 2);
}

TEST_F(ReadyStream, TheEndIsAlwaysAnnounced) {
  EXPECT_FALSE(count_calls());
  stream_.push_token(0, 1, "a");
  end(1);
  EXPECT_EQ(calls_, 1);
  end(0);
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(take_all(), 2);
  EXPECT_TRUE(stream_.over());
}

TEST_F(ReadyStream, SoIsAnEndWithoutMemory) {
  EXPECT_FALSE(count_calls());
  stream_.push_token(0, 1, "a");
  stream_.end_without_memory(0, {});
  EXPECT_EQ(calls_, 1);
  stream_.end_without_memory(1, {});
  EXPECT_EQ(calls_, 2);
  stream_.end_without_memory(1, {});  // has ended already
  EXPECT_EQ(calls_, 2);
}

TEST_F(ReadyStream, SettingItTellsWhatIsThereAlready) {
  EXPECT_FALSE(count_calls());
  stream_.push_token(0, 1, "a");
  EXPECT_TRUE(count_calls());
  EXPECT_EQ(take_all(), 1);
  EXPECT_FALSE(count_calls());
  end(0);
  end(1);
  EXPECT_TRUE(count_calls());
  take_all();
  EXPECT_TRUE(count_calls());  // nothing will ever follow
}

TEST_F(ReadyStream, OnlyTheLastOneSetIsCalled) {
  EXPECT_FALSE(count_calls());
  int others = 0;
  EXPECT_FALSE(stream_.set_ready_callback([&] { ++others; }));
  stream_.push_token(0, 1, "a");
  EXPECT_EQ(others, 1);
  take_all();
  EXPECT_FALSE(stream_.set_ready_callback({}));
  stream_.push_token(0, 1, "a");
  EXPECT_EQ(others, 1);
  EXPECT_EQ(calls_, 0);
}

TEST_F(ReadyStream, ItMayUseTheStreamAndReplaceItself) {
  std::vector<std::string> texts;
  EXPECT_FALSE(stream_.set_ready_callback([&, kept = std::make_shared<int>(7)] {
    while (const auto event = stream_.next(Clock::now())) texts.push_back(event->text);
    EXPECT_FALSE(stream_.over());
    stream_.cancel();
    EXPECT_FALSE(count_calls());
    EXPECT_EQ(*kept, 7);  // is there until the call has ended
  }));
  stream_.push_token(0, 1, "a");
  EXPECT_EQ(texts, std::vector<std::string>{"a"});
  EXPECT_TRUE(stream_.cancelled());
  stream_.push_token(0, 2, "b");
  EXPECT_EQ(calls_, 1);
  EXPECT_EQ(texts.size(), 1u);
}

TEST_F(ReadyStream, UnsettingWaitsForACallUnderWay) {
  std::promise<void> begun;
  std::promise<void> go_on;
  std::atomic<bool> ended{false};
  EXPECT_FALSE(stream_.set_ready_callback([&] {
    begun.set_value();
    go_on.get_future().wait();
    ended = true;
  }));
  std::thread writer([&] { stream_.push_token(0, 1, "a"); });
  begun.get_future().wait();
  auto unset = std::async(std::launch::async, [&] {
    EXPECT_TRUE(stream_.set_ready_callback({}));
    return ended.load();
  });
  EXPECT_EQ(unset.wait_for(50ms), std::future_status::timeout);
  go_on.set_value();
  EXPECT_TRUE(unset.get());
  writer.join();
}

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

// A model whose first step waits until it may begin.
class HeldBack {
 public:
  std::unique_ptr<FakeModel> model(const FakeModel::Options& options = {}) {
    auto model = std::make_unique<FakeModel>(options);
    model->on_step = [begin = std::make_shared<std::future<void>>(begin_.get_future())](auto) {
      if (begin->valid()) begin->get();
    };
    return model;
  }
  void begin() { begin_.set_value(); }

 private:
  std::promise<void> begin_;
};

// Handles with something to read, as the one thread that reads learns of them.
class ReadyQueue {
 public:
  void push(std::size_t index) {
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(index);
      callers_.insert(std::this_thread::get_id());
    }
    changed_.notify_one();
  }
  std::size_t pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty(); });
    const std::size_t index = ready_.front();
    ready_.pop_front();
    return index;
  }
  std::set<std::thread::id> callers() {
    const std::lock_guard lock(mutex_);
    return callers_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::size_t> ready_;
  std::set<std::thread::id> callers_;
};

TEST(ReadyCallbacks, OneThreadReadsAThousandStreams) {
  constexpr std::size_t kStreams = 1000;
  constexpr std::int64_t kTokens = 12;
  const FakeModel oracle({});
  ReadyQueue queue;
  Engine engine(std::make_unique<FakeModel>(FakeModel::Options{.logit_rows = 64, .pages = 128}),
                nullptr, {}, {.running = 64});
  std::vector<RequestHandle> handles;
  std::vector<Answer> answers(kStreams);
  std::size_t over = 0;
  const auto read = [&](std::size_t i) {
    const bool was_over = handles[i].over();
    while (std::optional<Event> event = handles[i].next(0ms)) answers[i].add(std::move(*event));
    over += handles[i].over() && !was_over;
  };
  for (std::size_t i = 0; i < kStreams; ++i) {
    Request wanted = request(static_cast<std::int32_t>(i), 1 + i % 50, kTokens);
    wanted.unread_tokens = 3;  // the engine waits for the reader again and again
    handles.push_back(engine.submit(std::move(wanted)));
    if (handles.back().set_ready_callback([&queue, i] { queue.push(i); })) read(i);
  }
  while (over < kStreams) read(queue.pop());
  for (std::size_t i = 0; i < kStreams; ++i) {
    const Request wanted = request(static_cast<std::int32_t>(i), 1 + i % 50, kTokens);
    ASSERT_EQ(answers[i].ids, oracle.continuation(wanted.prompt, kTokens)) << i;
  }
  EXPECT_EQ(queue.callers().size(), 1u);
  EXPECT_FALSE(queue.callers().contains(std::this_thread::get_id()));
}

TEST(ReadyCallbacks, AReaderThatTakesNothingIsCalledForTheFirstEventAndTheLast) {
  HeldBack held;
  Engine engine(held.model(), nullptr, {});
  RequestHandle handle = engine.submit(request(1, 600, 50));
  std::atomic<int> calls{0};
  std::promise<void> last;
  EXPECT_FALSE(handle.set_ready_callback([&] {
    if (++calls == 2) last.set_value();
  }));
  held.begin();
  last.get_future().wait();
  engine.settled_stats();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(handle.wait().front().ids.size(), 50u);
}

// All that a server does may be done in the callback: it reads, and the end of one request submits
// the next one and lets the handle go.
TEST(ReadyCallbacks, MayReadSubmitAndDropItsOwnHandle) {
  constexpr std::int32_t kRequests = 20;
  const FakeModel oracle({});
  HeldBack held;
  Engine engine(held.model(), nullptr, {});
  std::promise<void> done;
  std::unique_ptr<RequestHandle> handle;
  Answer answer;
  std::int32_t number = 0;
  std::function<void()> on_ready = [&] {
    while (std::optional<Event> event = handle->next(0ms)) answer.add(std::move(*event));
    if (!handle->over()) return;
    EXPECT_EQ(answer.ids, oracle.continuation(request(number, 20, 8).prompt, 8));
    answer = {};
    if (++number == kRequests) return done.set_value();
    handle = std::make_unique<RequestHandle>(engine.submit(request(number, 20, 8)));
    EXPECT_FALSE(handle->set_ready_callback(on_ready));
  };
  handle = std::make_unique<RequestHandle>(engine.submit(request(0, 20, 8)));
  EXPECT_FALSE(handle->set_ready_callback(on_ready));
  held.begin();
  done.get_future().wait();
}

TEST(ReadyCallbacks, NothingIsCalledOnceTheHandleIsGone) {
  Engine engine(std::make_unique<FakeModel>(FakeModel::Options{}), nullptr, {});
  std::vector<std::thread> users;
  for (std::int32_t user = 0; user < 4; ++user) {
    users.emplace_back([&, user] {
      for (int i = 0; i < 60; ++i) {
        // Goes as soon as the callback has been unset, replaced, or dropped with its handle.
        auto calls = std::make_unique<std::atomic<int>>(0);
        RequestHandle handle = engine.submit(request(user, 10, 1000));
        (void)handle.set_ready_callback([&calls = *calls] {
          std::this_thread::sleep_for(200us);  // so that users leave while it is being called
          ++calls;
        });
        // The reader is in the middle of events and calls, or has seen nothing of them yet.
        while (i % 2 == 0 && *calls < 1 + i % 5 && !handle.over()) handle.next(1ms);
        if (i % 3 == 1) handle.clear_ready_callback();
        if (i % 3 == 2) (void)handle.set_ready_callback([] {});
        if (i % 3 != 0) calls.reset();
      }
    });
  }
  for (std::thread& user : users) user.join();
}

TEST(ReadyCallbacks, ShutdownIsAnnounced) {
  std::atomic<bool> called{false};
  std::optional<RequestHandle> handle;
  {
    Engine engine(std::make_unique<FakeModel>(FakeModel::Options{}), nullptr, {});
    Request paused = request(1, 20, 1000);
    paused.unread_tokens = 1;
    handle = engine.submit(paused);
    while (!handle->set_ready_callback([&] { called = true; })) std::this_thread::yield();
    engine.settled_stats();  // the call for the first event, which nobody reads, is over
    called = false;
  }
  EXPECT_TRUE(called);
  EXPECT_EQ(handle->wait().front().reason, FinishReason::kError);
}

}  // namespace
}  // namespace bl
