// What a model, its pages and the guesses throw at the engine: it ends requests, and nothing else.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/error.h"
#include "busy_run.h"
#include "engine/adapter_registry.h"
#include "engine/engine.h"

namespace bl {
namespace {

using test::BusyRun;
using test::CoreTest;

class FailuresTest : public BusyRun {
 protected:
  // The `nth` call of the model, its pages or the draft throws.
  void fail_at(std::int64_t nth) {
    calls_ = 0;
    const auto call = [this, nth] {
      if (++calls_ != nth) return;
      if (nth % 2 == 0) throw std::bad_alloc();
      fail(ErrorCode::kDevice, "the card has left");
    };
    for (test::FakeModel* model : {model_.get(), draft_model_}) {
      if (model == nullptr) continue;
      model->on_step = [call](std::span<const StepItem>) { call(); };
      model->on_move = call;
    }
    if (draft_ != nullptr) draft_->on_propose = [call](std::span<const DraftJob>) { call(); };
  }

  void walk(Kind kind) {
    begin(kind);
    run();
    const std::deque<Asked> clean = asked_;
    std::int64_t guided = 0;  // tokens guessed for the two texts of a guided answer
    for (const Asked& asked : clean) {
      if (asked.open->request.sampling.cfg_scale != 1) guided += asked.usages[0].drafted_tokens;
    }
    if (kind != Kind::kAhead) {
      EXPECT_GT(guided, 0);
    }
    fail_at(0);
    for (std::int64_t nth = 1;; ++nth) {
      SCOPED_TRACE(nth);
      begin(kind);
      fail_at(nth);
      run();
      expect_right(clean, true);
      if (calls_ < nth) break;
      asked_.clear();
      run();
      expect_right(clean, false);
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(failed_, 20);
  }

  std::int64_t calls_ = 0;
};

TEST_F(FailuresTest, AnyCallMayThrowWhileTheEngineGuesses) { walk(Kind::kGuessing); }
TEST_F(FailuresTest, AnyCallMayThrowWhileADraftModelGuesses) { walk(Kind::kDrafting); }
TEST_F(FailuresTest, AnyCallMayThrowWhileStepsAreAhead) { walk(Kind::kAhead); }

TEST(EngineFailures, NothingThatIsThrownEndsTheThread) {
  auto owned = std::make_unique<test::FakeModel>(test::FakeModel::Options{});
  test::FakeModel& model = *owned;
  std::atomic<int> steps = 0;
  model.on_step = [&](std::span<const StepItem>) {
    const int step = ++steps;
    if (step == 3) throw std::bad_alloc();
    if (step == 6) throw std::length_error("a table is too long");
    if (step == 9) throw std::system_error(EAGAIN, std::generic_category());
  };
  Engine engine(std::move(owned), nullptr, {999});
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 20;
  request.ignore_end_tokens = true;
  for (const ErrorCode code : {ErrorCode::kOutOfMemory, ErrorCode::kLimit, ErrorCode::kIo}) {
    const Answer answer = engine.submit(request).wait().front();
    EXPECT_EQ(answer.reason, FinishReason::kError);
    EXPECT_EQ(answer.code, code);
    EXPECT_FALSE(answer.error.empty());
  }
  EXPECT_EQ(engine.submit(request).wait().front().ids, model.continuation({1, 2, 3}, 20));
}

// A model of adapters without weights.
class AdapterModel : public test::FakeModel {
 public:
  using FakeModel::FakeModel;
  std::shared_ptr<const LoraAdapter> pack_adapter(const PreparedAdapter&, std::size_t) override {
    return on_pack();
  }
  std::function<std::shared_ptr<const LoraAdapter>()> on_pack;
};

class AdapterRegistryTest : public testing::Test {
 protected:
  // As a user's thread and the engine's together.
  void load(const std::string& name) {
    auto loading = std::async(std::launch::async, [&] {
      registry_.load(name, std::make_unique<PreparedAdapter>(PeftAdapter{}));
    });
    while (loading.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      registry_.work(model_);
    }
    loading.get();
  }

  AdapterRegistry registry_{std::make_shared<Waker>()};
  AdapterModel model_{test::FakeModel::Options{}};
};

TEST_F(AdapterRegistryTest, WhoLoadsIsToldWhateverIsThrown) {
  model_.on_pack = []() -> std::shared_ptr<const LoraAdapter> {
    throw std::length_error("a table is too long");
  };
  EXPECT_THROW(load("a"), Error);
  EXPECT_TRUE(registry_.list().empty());
}

TEST_F(AdapterRegistryTest, NobodyWaitsWhileWeightsAreFreed) {
  bool answered = false;
  std::future<std::vector<AdapterInfo>> asking;
  model_.on_pack = [&] {
    return std::shared_ptr<const LoraAdapter>(nullptr, [&](const LoraAdapter*) {
      asking = std::async(std::launch::async, [&] { return registry_.list(); });
      answered = asking.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
    });
  };
  load("a");
  registry_.unload("a");
  registry_.work(model_);
  EXPECT_TRUE(answered);
}

// A page that cannot be brought back is the trouble of who asks for it.
TEST_F(CoreTest, AFailedMoveEndsWhoNeedsThePage) {
  host_pages_ = 20;
  start({.context = 2048, .pages = 8});
  ask(request(text(1000, 1), 2));
  run_all(20);
  ask(request(text(1900, 2), 2));
  run_all(20);
  ASSERT_GE(core_->stats().cache.pages_stored, 3);
  Asked& other = ask(request(text(40, 3), 20));
  for (int i = 0; i < 3; ++i) step();
  int moves = 0;
  model_->on_move = [&] {
    if (++moves == 2) fail(ErrorCode::kDevice, "the card has left");
  };
  Asked& first = ask(request(text(1000, 1), 2));
  run_all(60);
  EXPECT_EQ(first.reasons[0], FinishReason::kError);
  EXPECT_EQ(first.errors[0], "the card has left");
  EXPECT_EQ(first.codes[0], ErrorCode::kDevice);
  EXPECT_EQ(other.ids[0], model_->continuation(text(40, 3), 20));
  Asked& again = ask(request(text(1000, 1), 2));
  run_all(60);
  EXPECT_EQ(again.ids[0], model_->continuation(text(1000, 1), 2));
  expect_no_leak();
}

TEST_F(CoreTest, ADraftWithoutMemoryGuessesInTheNextStep) {
  auto draft = scripted(1, 1000);
  start({.logit_rows = 32}, 0, nullptr, {draft, 4});
  int calls = 0;
  draft->on_propose = [&](std::span<const DraftJob>) {
    if (++calls == 2) throw std::bad_alloc();
  };
  Asked& asked = ask(request(text(40, 3), 60));
  run_all(80);
  EXPECT_EQ(asked.ids[0], model_->continuation(text(40, 3), 60));
  EXPECT_GT(calls, 3);
  EXPECT_GT(asked.usages[0].accepted_tokens, 10);
}

}  // namespace
}  // namespace bl
