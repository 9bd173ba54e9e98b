// Every allocation of the engine's thread fails once.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "busy_run.h"
#include "failing_new.h"

namespace bl {
namespace {

using test::BusyRun;
using test::FailingNew;

// Sanitizers make each failure ten times as slow, so fewer allocations fail there.
constexpr int kStride = BL_SANITIZED ? 5 : 1;

class MemoryTest : public BusyRun {
 protected:
  void engines_turn(bool begins) override { FailingNew::counting = begins && armed_; }

  void walk(Kind kind, std::int64_t stride) {
    begin(kind);
    run();
    const std::deque<Asked> clean = asked_;
    std::int64_t runs = 0;
    for (std::int64_t nth = 1;; nth += stride, ++runs) {
      SCOPED_TRACE(nth);
      begin(kind);
      armed_ = true;
      FailingNew::left = nth;
      run();
      armed_ = false;
      expect_right(clean, true);
      if (FailingNew::left > 0) break;
      asked_.clear();
      run();
      expect_right(clean, false);
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(runs, 300 / kStride);
    EXPECT_GT(failed_, runs / 2);
  }

  bool armed_ = false;
};

TEST_F(MemoryTest, AnyAllocationMayFailWhileTheEngineGuesses) { walk(Kind::kGuessing, kStride); }
TEST_F(MemoryTest, AnyAllocationMayFailWhileADraftModelGuesses) {
  walk(Kind::kDrafting, 3 * kStride);
}
TEST_F(MemoryTest, AnyAllocationMayFailWhileStepsAreAhead) { walk(Kind::kAhead, kStride); }

TEST_F(MemoryTest, AnswersShareTheListsOfTheirRequest) {
  constexpr std::int32_t kVocab = 1 << 18;
  start({.vocab = kVocab, .logit_rows = 1});
  Request all = request(text(10, 1), 2);
  SamplingParams& params = all.sampling;
  params.n = 128;
  for (std::int32_t id = kVocab - 1; id > 0; id -= 2) {
    params.logit_bias.push_back({id, 0.5});
    params.banned_tokens.push_back(id);
    params.allowed_tokens.push_back(id);
    params.xtc_ignore_tokens.push_back(id);
    params.dry_breaker_tokens.push_back(id);
    params.stop_tokens.push_back(id);
  }
  armed_ = true;
  FailingNew::bytes = 0;
  ask(std::move(all));
  // One list alone has half a megabyte.
  EXPECT_LT(FailingNew::bytes, 400'000);
  armed_ = false;
}

// Chooses tokens itself and allocates nothing.
class PlainModel : public StepModel {
 public:
  Facts facts() const override {
    return {.vocab = 1000, .ids = 1000, .context = 4096, .step_tokens = 512, .logit_rows = 32};
  }
  PagePool& pool() override { return pool_; }
  StepOutput run(std::span<const StepItem> items) override {
    std::size_t rows = 0;
    for (const StepItem& item : items) {
      item.sequence->cached += item.count;
      if (item.logits != LogitRows::kNone) ids_[rows++] = 5;
    }
    return {{}, std::span(ids_).first(rows)};
  }
  void copy_page(std::int32_t, std::int32_t) override {}

 private:
  PagePool pool_{256};
  std::array<std::int32_t, 32> ids_{};
};

class StepAllocations : public MemoryTest {
 protected:
  // Allocations of 100 steps in which so many answers decode.
  std::int64_t count(int answers) {
    asked_.clear();
    PlainModel model;
    context_ = 4096;
    core_ = std::make_unique<EngineCore>(model, nullptr, EngineCore::Options{});
    for (int i = 0; i < answers; ++i) ask(request(text(20, i), 1000));
    for (int i = 0; i < 300; ++i) step();
    armed_ = true;
    FailingNew::left = kMany;
    for (int i = 0; i < 100; ++i) step();
    armed_ = false;
    core_.reset();
    return kMany - FailingNew::left;
  }
  static constexpr std::int64_t kMany = 1'000'000'000;
};

// A step makes a few allocations for its plan, whatever the number of answers. A token makes none,
// except that lists double now and then.
TEST_F(StepAllocations, ATokenCostsNone) {
  start({});
  const std::int64_t one = count(1);
  const std::int64_t many = count(32);
  EXPECT_LT(one, 100 * 10);
  EXPECT_LT(many - one, 100 * 32 / 4);
}

}  // namespace
}  // namespace bl
