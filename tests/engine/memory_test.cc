// Every allocation of the engine's thread fails once.

#include <gtest/gtest.h>

#include <cstdint>

#include "busy_run.h"
#include "failing_new.h"

namespace bl {
namespace {

using test::BusyRun;
using test::FailingNew;

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
    EXPECT_GT(runs, 300);
    EXPECT_GT(failed_, runs / 2);
  }

  bool armed_ = false;
};

TEST_F(MemoryTest, AnyAllocationMayFailWhileTheEngineGuesses) { walk(Kind::kGuessing, 1); }
TEST_F(MemoryTest, AnyAllocationMayFailWhileADraftModelGuesses) { walk(Kind::kDrafting, 3); }
TEST_F(MemoryTest, AnyAllocationMayFailWhileStepsAreAhead) { walk(Kind::kAhead, 1); }

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

}  // namespace
}  // namespace bl
