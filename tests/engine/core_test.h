#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cache/page_memory.h"
#include "engine/engine.h"
#include "engine/engine_core.h"
#include "engine/event_stream.h"
#include "engine/request_intake.h"
#include "fake_model.h"
#include "ops/kv_layout.h"
#include "scripted_draft.h"

namespace bl::test {

// The engine without its thread, on a model whose text is known.
class CoreTest : public testing::Test {
 protected:
  struct Asked {
    std::shared_ptr<OpenRequest> open;
    std::vector<std::vector<std::int32_t>> ids;  // a choice
    std::vector<std::optional<FinishReason>> reasons;
    std::vector<Usage> usages;
    std::vector<std::string> errors;
    std::vector<ErrorCode> codes;
    std::vector<std::vector<TokenLogprobs>> logprobs;
    std::vector<std::string> texts;
    std::vector<std::vector<std::int32_t>> healed;
    std::vector<Answer> answers;  // all of this and the rest
    std::size_t prompt_rows = 0;
    bool over() const {
      return std::all_of(reasons.begin(), reasons.end(), [](const auto& r) { return !!r; });
    }
  };

  // Without a tokenizer there are no texts.
  void start(const FakeModel::Options& options, std::int64_t running = 0,
             const Tokenizer* tokenizer = nullptr, SpeculationOptions speculation = {}) {
    core_.reset();
    model_ = std::make_unique<FakeModel>(options);
    context_ = std::min<std::int64_t>(options.context, std::int64_t{options.pages} * kPageSlots);
    EngineCore::Options core{running, 0, {kEnd}, std::move(speculation)};
    core.host_bytes = host_pages_ * model_->page_memory()->page_bytes();
    core.rates = rates_;
    core_ = std::make_unique<EngineCore>(*model_, tokenizer, core);
    intake_ = std::make_unique<RequestIntake>(
        tokenizer,
        RequestIntake::Limits{model_->facts(), context_, core_->most_running(), options.pages});
  }

  // Guesses of the model's own text, of which this share is right.
  std::shared_ptr<ScriptedDraft> scripted(double right, std::int64_t vocab, unsigned seed = 1) {
    return std::make_shared<ScriptedDraft>(
        [this](std::span<const std::int32_t> ids) { return model_->follows(ids); }, vocab, right,
        seed);
  }

  Request request(std::vector<std::int32_t> prompt, std::int64_t max_tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    request.ignore_end_tokens = true;
    return request;
  }

  Asked& ask(Request request) {
    auto open = std::make_shared<OpenRequest>();
    const auto tokens = static_cast<std::int64_t>(request.prompt.size());
    open->longest = std::min(context_, tokens + request.sampling.max_tokens);
    open->by_limit = true;
    open->salt = request.cache_salt;
    open->adapters = adapters_of(request);
    for (const auto& one : open->adapters) open->salt += fmt::format("+{}", one.weight);
    open->rank = static_cast<double>(clock_) - 50.0 * request.priority;
    open->request = std::move(request);
    intake_->complete(*open);
    const auto choices = static_cast<std::size_t>(open->request.sampling.n);
    open->stream = std::make_shared<EventStream>(static_cast<std::int32_t>(choices),
                                                 std::make_shared<Waker>());
    Asked& asked = asked_.emplace_back();
    asked.open = open;
    asked.ids.resize(choices);
    asked.reasons.resize(choices);
    asked.usages.resize(choices);
    asked.errors.resize(choices);
    asked.codes.resize(choices);
    asked.logprobs.resize(choices);
    asked.texts.resize(choices);
    asked.healed.resize(choices);
    asked.answers.resize(choices);
    engines_turn(true);
    core_->add(open);
    engines_turn(false);
    return asked;
  }

  bool step() {
    ++clock_;
    const auto now = EngineClock::now();
    engines_turn(true);
    const bool moved = core_->step(now);
    engines_turn(false);
    return moved;
  }
  // What lies between is done by the engine's thread, where there is one.
  virtual void engines_turn(bool) {}
  // Takes what has come without waiting.
  void read(Asked& asked) {
    while (!asked.over()) {
      const auto event = asked.open->stream->next(EngineClock::now());
      if (!event) return;
      const auto choice = static_cast<std::size_t>(event->choice);
      asked.answers[choice].add(*event);
      asked.ids[choice].insert(asked.ids[choice].end(), event->ids.begin(), event->ids.end());
      asked.texts[choice] += event->text;
      asked.healed[choice].insert(asked.healed[choice].end(), event->healed.begin(),
                                  event->healed.end());
      asked.prompt_rows += event->prompt_logprobs.size();
      for (const TokenLogprobs& one : event->logprobs) asked.logprobs[choice].push_back(one);
      if (!event->finish) continue;
      asked.reasons[choice] = event->finish;
      asked.usages[choice] = event->usage;
      asked.errors[choice] = event->error;
      asked.codes[choice] = event->code;
    }
  }
  void run_all(std::int64_t most_steps) {
    for (std::int64_t i = 0; i < most_steps && core_->requests() > 0; ++i) {
      step();
      for (Asked& asked : asked_) read(asked);
    }
    ASSERT_EQ(core_->requests(), 0);
  }
  // Every page is free or kept by the index alone.
  void expect_no_leak() {
    const EngineStats stats = core_->stats();
    EXPECT_EQ(stats.free_pages + stats.idle_pages, stats.pages);
    EXPECT_EQ(core_->cache().index().size(), stats.idle_pages);
    EXPECT_EQ(core_->cache().index().host_size(), stats.host_pages - stats.free_host_pages);
  }

  // --- what holds for every kind of model ---

  // One of two answers of so many tokens has a broken row behind its first `good + 1`.
  void expect_damage_ends_one(const FakeModel::Options& options, std::size_t good,
                              std::int64_t tokens, std::int64_t most_steps) {
    start(options);
    const std::vector<std::int32_t> bad = text(40, 3);
    model_->is_damaged = [&](std::span<const std::int32_t> ids) {
      return ids.size() > bad.size() + good && std::equal(bad.begin(), bad.end(), ids.begin());
    };
    Asked& first = ask(request(bad, tokens));
    Asked& second = ask(request(text(40, 4), tokens));
    run_all(most_steps);
    EXPECT_EQ(first.reasons[0], FinishReason::kError);
    EXPECT_NE(first.errors[0].find("NaN"), std::string::npos) << first.errors[0];
    EXPECT_EQ(first.ids[0].size(), good + 1);
    EXPECT_EQ(second.ids[0], model_->continuation(text(40, 4), tokens));
    expect_no_leak();
  }
  // The `failing`th step fails; somebody else asks behind the `before`th call of step().
  void expect_failure_ends_one(const FakeModel::Options& options, int failing, int before) {
    start(options);
    Asked& first = ask(request(text(40, 3), 20));
    int steps = 0;
    model_->on_step = [&](std::span<const StepItem>) {
      if (++steps == failing) fail(ErrorCode::kDevice, "the card has left");
    };
    for (int i = 0; i < before; ++i) step();
    Asked& second = ask(request(text(40, 4), 20));
    run_all(60);
    EXPECT_EQ(first.reasons[0], FinishReason::kError);
    EXPECT_EQ(first.errors[0], "the card has left");
    EXPECT_EQ(second.ids[0], model_->continuation(text(40, 4), 20));
    expect_no_leak();
  }
  // Of two answers of so many tokens one is not read while steps go by.
  void expect_slow_reader_pauses(const FakeModel::Options& options, std::int64_t tokens,
                                 int steps) {
    start(options);
    Request slow = request(text(30, 1), tokens);
    slow.unread_tokens = 10;
    Asked& first = ask(slow);
    Asked& second = ask(request(text(30, 2), tokens));
    for (int i = 0; i < steps; ++i) {
      step();
      read(second);
    }
    EXPECT_EQ(second.ids[0].size(), static_cast<std::size_t>(tokens));
    EXPECT_EQ(first.open->stream->unread(0), 10);
    EXPECT_FALSE(step());  // nothing to do until he reads
    run_all(400);
    EXPECT_EQ(first.ids[0], model_->continuation(slow.prompt, tokens));
  }

  std::vector<std::int32_t> text(std::size_t tokens, std::int32_t seed) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < tokens; ++i) {
      ids.push_back(
          static_cast<std::int32_t>((i * 31 + static_cast<std::size_t>(seed) * 17) % 997));
    }
    return ids;
  }

  static constexpr std::int32_t kEnd = FakeModel::kEnd;
  std::size_t host_pages_ = 0;  // of the host tier, when started
  TierRates rates_;             // moving is always worth it, a page a step
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<EngineCore> core_;
  std::unique_ptr<RequestIntake> intake_;
  std::int64_t context_ = 0;
  std::int64_t clock_ = 0;
  std::deque<Asked> asked_;
};

}  // namespace bl::test
