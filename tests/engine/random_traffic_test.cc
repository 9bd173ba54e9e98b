// Random traffic against what a single request would get: nothing lost, nothing wrong, no page
// leaked, whatever is shared, evicted, preempted, pinned, paused, cancelled, late or taken back.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <random>

#include "answer_oracle.h"
#include "core_test.h"
#include "sample/grammar_library.h"
#include "word_tokenizer.h"

namespace bl {
namespace {

using test::AnswerOracle;
using test::FakeModel;

// Seeds; BITLOOM_TEST_ROUNDS asks for more of them than a build waits for.
std::int64_t rounds() {
  const char* text = std::getenv("BITLOOM_TEST_ROUNDS");
  return text == nullptr ? 40 : static_cast<std::int64_t>(std::strtoul(text, nullptr, 10));
}

// A build may be without the library that constraints need.
bool has_grammars() {
  static const bool has = open_grammar_library({"a"}) != nullptr;
  return has;
}

class RandomTraffic : public test::CoreTest {
 protected:
  static constexpr std::array<const char*, 2> kPins{"one", "other"};

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }

  // A model, and an engine for it, each time another.
  void begin(unsigned seed) {
    random_.seed(seed);
    FakeModel::Options options;
    options.step_tokens = 16 + below(600);
    options.logit_rows = 1 + below(std::min<std::int64_t>(12, options.step_tokens));
    options.pages = static_cast<std::int32_t>(5 + below(24));
    options.context = 1280;
    options.gives_logits = guided_ || one_in(3);
    options.repeats = !one_in(4);
    asked_.clear();
    // Half of the time with guesses, of which more or fewer are right.
    SpeculationOptions speculation;
    if (seed % 2 == 1) {
      auto draft = scripted(0.25 * static_cast<double>(below(5)), options.vocab, seed);
      draft->free = one_in(2);
      speculation = {draft, one_in(3) ? 0 : 1 + below(7)};
      options.logit_rows += below(30);
      options.step_tokens = std::max(options.step_tokens, options.logit_rows);
    }
    // Two runs in three swap, some of them in too little host memory, or so slowly that computing
    // is better for short pages.
    rates_ = {.copy_bytes = static_cast<double>(below(3)) * 40000, .prefill_tokens = 1000};
    host_pages_ = seed % 3 == 0 ? 0 : static_cast<std::size_t>(2 + below(40));
    pins_ = one_in(4);
    options_ = options;
    start(options, 1 + below(12), tokenizer_.get(), std::move(speculation));
  }

  Request next_request() {
    std::vector<std::int32_t> prompt =
        text(static_cast<std::size_t>(1 + below(900)), static_cast<std::int32_t>(below(3)));
    for (std::int64_t k = below(4); k > 0; --k) {
      prompt.push_back(static_cast<std::int32_t>(below(5)));
    }
    Request r = request(prompt, 1 + below(one_in(3) ? 300 : 20));
    if (one_in(5)) r.sampling.n = 1 + below(4);
    if (one_in(10)) r.sampling.best_of = r.sampling.n + below(3);
    r.priority = static_cast<std::int32_t>(below(3) - 1);
    r.speculate = !one_in(4);
    r.unread_tokens = one_in(4) ? 1 + below(10) : 1 << 20;
    if (pins_ && one_in(6)) r.pin = kPins[static_cast<std::size_t>(below(2))];
    if (one_in(4)) r.adapters = {{"", 0.25 * static_cast<double>(1 + below(3))}};
    if (one_in(12)) r.adapters.push_back({"", 2});
    if (one_in(8)) r.sampling.prompt_logprobs = options_.gives_logits ? 1 : -1;
    if (options_.gives_logits && (guided_ || one_in(3))) add_features(r);
    add_ends(r);
    return r;
  }

  // What takes tokens back, cuts prompts or needs a second sequence; two of the longest take eight
  // pages.
  void add_features(Request& r) {
    SamplingParams& params = r.sampling;
    if (one_in(3)) params.banned_strings = {"dd", "abca", "Cb", "bbba", "adcd"};
    if (one_in(4)) {
      params.token_healing = true;
    } else if (one_in(3) && has_grammars()) {
      r.constraint = {.kind = ConstraintSpec::Kind::kRegex,
                      .text = fmt::format("[{}]{{{}}}", one_in(2) ? "abc" : "acd", 1 + below(80))};
    }
    if ((guided_ || one_in(4)) && core_->most_running() > 1 && options_.pages >= 8) {
      params.cfg_scale = one_in(2) ? 2.5 : -1;
      for (auto i = 1 + below(300); i > 0; --i) {
        r.negative_prompt.push_back(static_cast<std::int32_t>(i % 7));
      }
    }
    if (one_in(3)) params.temperature = 5;
    if (one_in(5)) params.mirostat_mode = 2;
    if (one_in(5)) params.dry_multiplier = 2;
    params.seed = random_();
  }

  void add_ends(Request& r) {
    SamplingParams& params = r.sampling;
    if (one_in(4)) params.stop_strings = {"ccc", "dbca", "aaaa", "ddb"};
    if (params.token_healing || r.constraint || !one_in(4)) return;
    r.ignore_end_tokens = false;
    for (int i = 0; i < 30; ++i) {
      params.stop_tokens.push_back(static_cast<std::int32_t>(below(kEnd)));
    }
  }

  // What happens to those that have asked, and a step.
  void go_on() {
    if (!asked_.empty()) {
      OpenRequest& open =
          *asked_[static_cast<std::size_t>(below(static_cast<std::int64_t>(asked_.size())))].open;
      if (one_in(12)) open.stream->cancel();
      if (one_in(20)) open.deadline = EngineClock::now();
    }
    if (one_in(20)) core_->unpin(kPins[static_cast<std::size_t>(below(2))]);
    step();
    for (Asked& asked : asked_) {
      if (one_in(3)) read(asked);
    }
  }

  AnswerOracle::Answer expected(const Request& r, std::int32_t index) const {
    const SamplingParams& params = r.sampling;
    // Where nothing but the text decides, without the oracle's ado.
    const bool plain = params.temperature == 0 && params.banned_strings.empty() &&
                       params.stop_strings.empty() && params.stop_tokens.empty() &&
                       !params.token_healing && params.cfg_scale == 1 &&
                       params.dry_multiplier == 0 && !r.constraint;
    if (!plain) return AnswerOracle(*model_, pieces_).answer(r, index);
    AnswerOracle::Answer answer;
    answer.ids = model_->continuation(r.prompt, params.max_tokens, test::adapters_of(r));
    for (const std::int32_t id : answer.ids) answer.text += pieces_[static_cast<std::size_t>(id)];
    return answer;
  }

  // Whether a choice has got what it should, or a beginning of it where it had to leave.
  bool agrees(const Asked& asked, std::size_t choice, const AnswerOracle::Answer& full) const {
    const FinishReason reason = *asked.reasons[choice];
    const bool left = reason == FinishReason::kCancelled || reason == FinishReason::kDeadline ||
                      reason == FinishReason::kError;
    const std::vector<std::int32_t>& ids = asked.ids[choice];
    // Who leaves gets what is there, of which some tokens might have been taken back.
    const bool may_go_back = !asked.open->request.sampling.banned_strings.empty();
    const std::size_t open = left && may_go_back ? std::min<std::size_t>(4, ids.size()) : 0;
    if (ids.size() > full.ids.size() ||
        !std::equal(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(open), full.ids.begin())) {
      return false;
    }
    if (left || reason == FinishReason::kContext) return true;
    return reason == full.reason && ids.size() == full.ids.size() &&
           asked.texts[choice] == full.text;
  }

  void expect_right(const Asked& asked) {
    const Request& r = asked.open->request;
    std::vector<AnswerOracle::Answer> all;
    for (std::int32_t i = 0; i < asked.open->choices(); ++i) all.push_back(expected(r, i));
    for (std::size_t c = 0; c < asked.ids.size(); ++c) {
      ASSERT_TRUE(asked.reasons[c].has_value());
      if (*asked.reasons[c] == FinishReason::kError) {
        // Pins hold pages that others would have had, and each other's.
        ASSERT_TRUE(pins_) << asked.errors[c];
        ASSERT_EQ(asked.codes[c], ErrorCode::kLimit) << asked.errors[c];
      }
      // Of several, the best: the oracle does not know which.
      const bool right = asked.open->keeps_best()
                             ? std::any_of(all.begin(), all.end(),
                                           [&](const auto& one) { return agrees(asked, c, one); })
                             : agrees(asked, c, all[c]);
      ASSERT_TRUE(right) << c << " of " << all.size() << ": " << name_of(*asked.reasons[c])
                         << ", should be " << name_of(all[c].reason);
      ++ended_[*asked.reasons[c]];
      rewinds_ += asked.usages[c].rewinds;
      guided_guesses_ += r.sampling.cfg_scale != 1 ? asked.usages[c].accepted_tokens : 0;
      with_adapters_ += r.adapters.empty() ? 0 : 1;
      best_ += asked.open->keeps_best() ? 1 : 0;
      pinned_ += r.pin.empty() ? 0 : 1;
    }
  }

  // An engine's life, and whether everybody got what he should.
  void live(std::int64_t seed) {
    begin(static_cast<unsigned>(seed));
    for (int i = 0; i < 400; ++i) {
      if (one_in(4) && core_->requests() < 30) ask(next_request());
      go_on();
    }
    run_all(60000);
    for (const Asked& asked : asked_) {
      expect_right(asked);
      if (HasFatalFailure()) return;
    }
    for (const char* pin : kPins) core_->unpin(pin);
    expect_no_leak();
  }

  const std::vector<std::string> pieces_ = test::letter_pieces(1000, 4);
  const std::unique_ptr<Tokenizer> tokenizer_ = test::make_word_tokenizer(pieces_);
  std::mt19937 random_;
  FakeModel::Options options_;
  bool pins_ = false;
  bool guided_ = false;  // nearly all answers are, on models that allow it
  // Of all runs: what has come up.
  std::map<FinishReason, std::int64_t> ended_;
  std::int64_t rewinds_ = 0;
  std::int64_t guided_guesses_ = 0;  // that were right
  std::int64_t with_adapters_ = 0;
  std::int64_t best_ = 0;
  std::int64_t pinned_ = 0;
};

TEST_F(RandomTraffic, IsAnsweredAsIfEachWereAlone) {
  std::int64_t accepted = 0;
  std::int64_t refused = 0;
  std::int64_t restored = 0;
  std::int64_t dropped = 0;
  std::int64_t repeated = 0;
  for (std::int64_t seed = 0; seed < rounds(); ++seed) {
    SCOPED_TRACE(seed);
    live(seed);
    if (HasFatalFailure()) return;
    const EngineStats stats = core_->stats();
    accepted += stats.accepted_tokens;
    refused += stats.drafted_tokens - stats.accepted_tokens;
    restored += stats.cache.pages_restored;
    dropped += stats.cache.pages_dropped;
    repeated += model_->repeated;
  }
  // It is worth something where all of this has come up.
  EXPECT_GT(accepted, 100 * rounds());
  EXPECT_GT(refused, 100 * rounds());
  EXPECT_GT(restored, 5 * rounds());
  EXPECT_GT(dropped, rounds());
  EXPECT_GT(repeated, 10 * rounds());
  EXPECT_GT(rewinds_, 2 * rounds());
  EXPECT_GT(with_adapters_, 20 * rounds());
  EXPECT_GT(best_, 5 * rounds());
  EXPECT_GT(pinned_, rounds());
  EXPECT_GT(ended_[FinishReason::kStopString], 5 * rounds());
  EXPECT_GT(ended_[FinishReason::kEndToken], 2 * rounds());
  EXPECT_GT(ended_[FinishReason::kDeadline], rounds());
  EXPECT_GT(ended_[FinishReason::kCancelled], 5 * rounds());
  if (has_grammars()) {
    EXPECT_GT(ended_[FinishReason::kConstraint], rounds() / 2);
  }
}

// Two texts an answer, and guesses for both.
TEST_F(RandomTraffic, OfGuidedAnswersIsAnsweredAsIfEachWereAlone) {
  guided_ = true;
  std::int64_t preempted = 0;
  for (std::int64_t seed = 1; seed < rounds(); seed += 2) {
    SCOPED_TRACE(seed);
    live(seed);
    if (HasFatalFailure()) return;
    preempted += core_->stats().preemptions;
  }
  EXPECT_GT(guided_guesses_, 10 * rounds());
  EXPECT_GT(preempted, rounds());
  EXPECT_GT(rewinds_, 2 * rounds());
  EXPECT_GT(ended_[FinishReason::kStopString], rounds());
  EXPECT_GT(ended_[FinishReason::kCancelled], rounds());
}

}  // namespace
}  // namespace bl
