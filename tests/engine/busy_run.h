#pragma once
#include <string>
#include <vector>

#include "core_test.h"
#include "engine/model_draft.h"
#include "word_tokenizer.h"

namespace bl::test {

// A short run in which most of what an engine does comes up, to be made again and again with
// something that goes wrong at another place each time.
class BusyRun : public CoreTest {
 protected:
  enum class Kind { kGuessing, kDrafting, kAhead };

  void begin(Kind kind) {
    kind_ = kind;
    host_pages_ = 4;
    FakeModel::Options options;
    options.step_tokens = 300;
    options.pages = 9;
    options.context = 1280;
    options.gives_logits = kind != Kind::kAhead;
    options.repeats = kind == Kind::kAhead;
    SpeculationOptions speculation;
    draft_model_ = nullptr;
    if (kind == Kind::kGuessing) speculation = {scripted(0.7, options.vocab), 4};
    if (kind == Kind::kDrafting) {
      auto model = std::make_unique<FakeModel>(options);
      draft_model_ = model.get();
      speculation = {std::make_shared<ModelDraft>(std::move(model), nullptr), 4};
      speculation.source->check_target(nullptr, options.vocab);
    }
    asked_.clear();
    start(options, 6, tokenizer_.get(), speculation);
    draft_ = dynamic_cast<ScriptedDraft*>(speculation.source.get());
  }

  // Asks for everything and reads to the end.
  void run() {
    const bool logits = kind_ != Kind::kAhead;
    Request pinned = request(text(520, 1), 6);
    pinned.pin = "system";
    ask(pinned);
    Request several = request(text(300, 2), 12);
    several.sampling.n = 3;
    ask(several);
    for (int i = 0; i < 4; ++i) step();
    Request best = request(text(270, 2), 8);
    best.sampling.n = 2;
    best.sampling.best_of = 3;
    best.sampling.temperature = logits ? 5 : 0;
    ask(best);
    if (logits) ask_for_features();
    for (int i = 0; i < 6; ++i) step();
    for (std::int32_t i = 3; i < 7; ++i) ask(request(text(400, i), 4));
    run_all(400);
    ask(request(text(520, 1), 6));
    ask(request(text(410, 3), 6));
    run_all(400);
    core_->unpin("system");
  }

  // What was asked has been answered as in `clean`, or has an error; no page is lost.
  void expect_right(const std::deque<Asked>& clean, bool may_fail) {
    ASSERT_EQ(asked_.size(), clean.size());
    for (std::size_t i = 0; i < clean.size(); ++i) {
      for (std::size_t c = 0; c < clean[i].ids.size(); ++c) {
        ASSERT_TRUE(asked_[i].reasons[c].has_value());
        if (asked_[i].reasons[c] == FinishReason::kError) {
          ASSERT_TRUE(may_fail) << asked_[i].errors[c];
          ASSERT_FALSE(asked_[i].errors[c].empty());
          failed_ += 1;
          continue;
        }
        // The best of fewer are others.
        if (may_fail && clean[i].open->keeps_best()) continue;
        ASSERT_EQ(asked_[i].ids[c], clean[i].ids[c]);
        ASSERT_EQ(asked_[i].texts[c], clean[i].texts[c]);
        ASSERT_EQ(asked_[i].reasons[c], clean[i].reasons[c]);
      }
    }
    expect_no_leak();
  }

  const std::vector<std::string> pieces_ = letter_pieces(1000, 4);
  const std::unique_ptr<Tokenizer> tokenizer_ = make_word_tokenizer(pieces_);
  ScriptedDraft* draft_ = nullptr;
  FakeModel* draft_model_ = nullptr;
  std::int64_t failed_ = 0;  // answers

 private:
  void ask_for_features() {
    Request r = request(text(40, 8), 30);
    r.sampling.banned_strings = {"dd", "abca", "Cb", "bbba", "adcd"};
    r.sampling.stop_strings = {"cccc"};
    ask(r);
    r = request(text(60, 9), 10);
    r.sampling.token_healing = true;
    r.sampling.logprobs = true;
    r.sampling.top_logprobs = 3;
    ask(r);
    r = request(text(30, 10), 10);
    r.sampling.cfg_scale = 2;
    r.negative_prompt = text(280, 11);
    ask(r);
    r = request(text(50, 12), 5);
    r.sampling.prompt_logprobs = 1;
    r.return_logits = true;
    ask(r);
  }

  Kind kind_ = Kind::kGuessing;
};

}  // namespace bl::test
