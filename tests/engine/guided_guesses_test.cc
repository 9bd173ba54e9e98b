// Guidance and guesses together: both texts of an answer go on with the same guesses, and the
// answer is what it is without them.

#include <gtest/gtest.h>

#include <algorithm>

#include "answer_oracle.h"
#include "core_test.h"
#include "engine/model_draft.h"
#include "engine/ngram_draft.h"
#include "sample/grammar_library.h"
#include "word_tokenizer.h"

namespace bl {
namespace {

using test::AnswerOracle;
using test::FakeModel;

class GuidedGuesses : public test::CoreTest {
 protected:
  // A model of so many pieces of four letters.
  void begin(std::size_t pieces, FakeModel::Options options, SpeculationOptions speculation) {
    pieces_ = test::letter_pieces(pieces, 4);
    options.vocab = static_cast<std::int64_t>(pieces);
    options.gives_logits = true;
    tokenizer_ = test::make_word_tokenizer(pieces_);
    asked_.clear();
    start(options, 0, tokenizer_.get(), std::move(speculation));
  }
  Request guided(std::size_t prompt, std::int32_t seed, std::int64_t max_tokens) {
    Request wanted = request(text(prompt, seed), max_tokens);
    wanted.negative_prompt = text(20 + static_cast<std::size_t>(seed) * 40, seed + 50);
    for (std::vector<std::int32_t>* ids : {&wanted.prompt, &wanted.negative_prompt}) {
      for (std::int32_t& id : *ids) id %= static_cast<std::int32_t>(pieces_.size());
    }
    wanted.sampling.cfg_scale = 2.5;
    wanted.sampling.seed = static_cast<std::uint64_t>(seed);
    return wanted;
  }
  // One of each kind of sampling, and what cuts texts.
  std::vector<Request> every_kind() {
    std::vector<Request> all;
    const auto add = [&](auto&& change) {
      const auto seed = static_cast<std::int32_t>(all.size());
      Request wanted = guided(30 + 13 * all.size(), seed, 60);
      wanted.sampling.temperature = 8;
      wanted.sampling.top_k = 0;
      wanted.sampling.top_p = 1;
      change(wanted);
      all.push_back(std::move(wanted));
    };
    add([](Request& r) { r.sampling.temperature = 0; });
    add([](Request&) {});
    add([](Request& r) { r.sampling.cfg_scale = -0.5; });
    add([](Request& r) { r.sampling.top_k = 3; });
    add([](Request& r) { r.sampling.n = 3; });
    add([](Request& r) { r.sampling.repetition_penalty = 1.5; });
    add([](Request& r) { r.sampling.dry_multiplier = 2; });
    add([](Request& r) { r.sampling.mirostat_mode = 2; });
    add([](Request& r) { r.sampling.banned_strings = {"dd", "abca", "Cb", "bbba", "adcd"}; });
    add([](Request& r) { r.sampling.stop_strings = {"ccc", "dbca", "aaaa"}; });
    add([](Request& r) { r.sampling.token_healing = true; });
    add([](Request& r) {
      r.sampling.stop_tokens = {3, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39};
      r.ignore_end_tokens = false;
    });
    if (open_grammar_library({"a"}) == nullptr) return all;
    add([](Request& r) {
      r.constraint = {.kind = ConstraintSpec::Kind::kRegex, .text = "[abc]{70}"};
      r.sampling.banned_strings = {"cac", "bb"};
    });
    return all;
  }
  void expect_as_defined(const Asked& asked) {
    const AnswerOracle oracle(*model_, pieces_);
    for (std::size_t i = 0; i < asked.ids.size(); ++i) {
      const auto expected = oracle.answer(asked.open->request, static_cast<std::int32_t>(i));
      EXPECT_EQ(asked.ids[i], expected.ids) << asked.errors[i];
      EXPECT_EQ(asked.texts[i], expected.text);
      EXPECT_EQ(asked.healed[i], expected.healed);
      EXPECT_EQ(asked.reasons[i], expected.reason);
      EXPECT_EQ(asked.usages[i].rewinds, expected.rewinds);
      EXPECT_EQ(asked.usages[i].generated_tokens, static_cast<std::int64_t>(expected.ids.size()));
    }
  }
  // Asks for all, and for nothing else, of an engine that has just begun.
  void answer(const std::vector<Request>& wanted, std::int64_t most_steps = 20000) {
    for (const Request& one : wanted) ask(one);
    run_all(most_steps);
    std::int64_t drafted = 0;
    std::int64_t accepted = 0;
    std::int64_t rewinds = 0;
    for (const Asked& asked : asked_) {
      expect_as_defined(asked);
      for (const Usage& usage : asked.usages) {
        drafted += usage.drafted_tokens;
        accepted += usage.accepted_tokens;
        rewinds += usage.rewinds;
      }
    }
    // A guess for both texts is one guess. What was right and is taken back with its text counts
    // for the answer alone.
    EXPECT_EQ(core_->stats().drafted_tokens, drafted);
    EXPECT_EQ(core_->stats().draft_rounds > 0, drafted > 0);
    EXPECT_LE(core_->stats().draft_rounds, drafted);
    EXPECT_LE(core_->stats().accepted_tokens, accepted);
    if (rewinds == 0) {
      EXPECT_EQ(core_->stats().accepted_tokens, accepted);
    }
    expect_no_leak();
  }
  // A draft that is a model of its own, of these pages.
  std::shared_ptr<ModelDraft> model_draft(std::size_t pieces, std::int32_t pages) {
    FakeModel::Options options{.logit_rows = 32, .pages = pages, .gives_logits = true};
    options.vocab = static_cast<std::int64_t>(pieces);
    auto draft = std::make_shared<ModelDraft>(std::make_unique<FakeModel>(options), nullptr);
    draft->check_target(nullptr, options.vocab);
    return draft;
  }

  std::vector<std::string> pieces_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(GuidedGuesses, RightOnesSaveSteps) {
  begin(340, {.logit_rows = 16}, {scripted(1.0, 340), 5});
  answer({guided(40, 1, 100)});
  const Usage& usage = asked_[0].usages[0];
  EXPECT_GT(usage.drafted_tokens, 60);
  EXPECT_EQ(usage.accepted_tokens, usage.drafted_tokens);
  EXPECT_EQ(core_->stats().steps, 100 - usage.accepted_tokens);
  // Of two texts, the first token of each counting as the prompt's.
  EXPECT_EQ(core_->stats().decode_tokens, 2 * 99);
  EXPECT_EQ(usage.generated_tokens, 100);
}

TEST_F(GuidedGuesses, WrongOnesCostNothingButTheirRows) {
  begin(340, {.logit_rows = 16}, {scripted(0.0, 340), 5});
  answer({guided(40, 1, 100)});
  EXPECT_GT(asked_[0].usages[0].drafted_tokens, 60);
  EXPECT_EQ(asked_[0].usages[0].accepted_tokens, 0);
  EXPECT_EQ(core_->stats().steps, 100);
}

TEST_F(GuidedGuesses, EverythingIsAsWithoutThem) {
  begin(340, {.logit_rows = 64, .pages = 160}, {});
  answer(every_kind());
  const std::int64_t steps = core_->stats().steps;
  for (const bool free : {false, true}) {
    for (const double right : {0.7, 1.0}) {
      SCOPED_TRACE(right);
      auto draft = scripted(right, 340);
      draft->free = free;
      begin(340, {.logit_rows = 160, .pages = 160}, {draft, 6});
      answer(every_kind());
      EXPECT_LT(core_->stats().steps, steps);
      EXPECT_GT(core_->stats().accepted_tokens, 200);
      EXPECT_LT(core_->stats().accepted_tokens, core_->stats().drafted_tokens);
    }
  }
}

// As many as pay, by the clock: whatever it says, the answers are the same.
TEST_F(GuidedGuesses, AsManyAsPay) {
  auto draft = scripted(1.0, 340);
  draft->free = true;
  begin(340, {.logit_rows = 160, .pages = 160}, {draft, 0});
  answer(every_kind());
}

// Of few tokens some come again and again.
TEST_F(GuidedGuesses, OfTheTextsOwnNgrams) {
  for (const std::int64_t most : {1, 4}) {
    begin(4, {.logit_rows = 64, .pages = 96}, {std::make_shared<NgramDraft>(1), most});
    std::vector<Request> wanted;
    for (std::int32_t seed = 0; seed < 6; ++seed) {
      wanted.push_back(guided(60, seed, 120));
      if (seed % 2 == 1) wanted.back().sampling.temperature = 12;
      if (seed % 3 == 2) wanted.back().sampling.banned_strings = {"abba", "dca"};
    }
    answer(wanted);
    EXPECT_GT(core_->stats().accepted_tokens, 50);
    EXPECT_LT(core_->stats().steps, 120);
  }
}

TEST_F(GuidedGuesses, OfAModel) {
  begin(340, {.logit_rows = 160, .pages = 160}, {model_draft(340, 64), 5});
  answer(every_kind());
  EXPECT_GT(core_->stats().accepted_tokens, 100);
  EXPECT_LT(core_->stats().accepted_tokens, core_->stats().drafted_tokens);
  // One that has no place for most texts.
  begin(340, {.logit_rows = 160, .pages = 160}, {model_draft(340, 4), 5});
  answer(every_kind());
  EXPECT_GT(core_->stats().accepted_tokens, 0);
}

// Where there is room for the guesses of one text alone, nobody has any; else both have as many.
TEST_F(GuidedGuesses, RowsAreForBothOrNeither) {
  for (const std::int64_t rows : {2, 3, 4, 5, 7}) {
    SCOPED_TRACE(rows);
    begin(340, {.logit_rows = rows}, {scripted(1.0, 340), 5});
    model_->on_step = [&](std::span<const StepItem> items) {
      for (const StepItem& item : items) {
        if (item.logits == LogitRows::kAll) {
          EXPECT_EQ(items.size(), 2u);
          EXPECT_EQ(item.count, items.front().count);
        }
      }
    };
    answer({guided(40, 1, 60)});
    const std::int64_t drafted = asked_[0].usages[0].drafted_tokens;
    EXPECT_EQ(drafted > 0, rows >= 4) << drafted;
    EXPECT_EQ(core_->stats().steps, 60 - asked_[0].usages[0].accepted_tokens);
  }
}

TEST_F(GuidedGuesses, BesideOthersWithFewPagesAndLeavers) {
  begin(340, {.context = 1024, .logit_rows = 40, .pages = 8}, {scripted(0.8, 340), 5});
  for (std::int32_t seed = 0; seed < 6; ++seed) {
    Request wanted = guided(200, seed, 150);
    if (seed % 3 == 2) wanted.sampling.cfg_scale = 1;
    if (seed % 3 == 2) wanted.negative_prompt.clear();
    if (seed == 3) wanted.sampling.banned_strings = {"dd", "abca", "Cb", "bbba"};
    if (seed == 4) wanted.unread_tokens = 7;
    ask(wanted);
  }
  for (int i = 0; i < 30; ++i) step();
  asked_[1].open->stream->cancel();
  run_all(20000);
  EXPECT_GT(core_->stats().preemptions, 0);
  for (std::size_t i : {0u, 2u, 3u, 4u, 5u}) {
    expect_as_defined(asked_[i]);
    EXPECT_GT(asked_[i].usages[0].accepted_tokens, 10);
  }
  EXPECT_EQ(asked_[1].reasons[0], FinishReason::kCancelled);
  expect_no_leak();
}

// Wrong guesses across the ends of pages, of texts that share them, never show in others' pages:
// FakeModel reads everything back.
TEST_F(GuidedGuesses, PagesArePublishedWhenTheyAreVerified) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    begin(340, {.logit_rows = 96, .pages = 40}, {scripted(0.5, 340, seed), 7});
    std::vector<Request> wanted;
    for (int i = 0; i < 5; ++i) {
      Request one = guided(240 + seed, 1, 60);
      one.negative_prompt = guided(255 - seed, 2, 1).prompt;
      one.sampling.banned_strings = {"dd", "abca", "cb", "bbba"};
      wanted.push_back(one);
    }
    answer(wanted);
  }
}

// Neither text keeps the page that only wrong guesses have come to.
TEST_F(GuidedGuesses, PagesOfWrongOnesAreGivenBack) {
  begin(340, {.logit_rows = 16, .pages = 8}, {scripted(0.0, 340), 7});
  Request wanted = guided(248, 1, 30);
  wanted.negative_prompt = guided(248, 2, 1).prompt;
  std::int64_t beyond = 0;
  model_->on_step = [&](std::span<const StepItem> items) {
    for (const StepItem& item : items) {
      beyond += item.sequence->cached + item.count > kPageSlots ? 1 : 0;
    }
  };
  const Asked& asked = ask(wanted);
  for (int token = 1; token <= 8; ++token) {
    step();
    EXPECT_EQ(core_->stats().free_pages, 6);
  }
  EXPECT_GT(beyond, 2);
  run_all(60);
  expect_as_defined(asked);
  expect_no_leak();
}

TEST_F(GuidedGuesses, DamagedRowsOfEitherTextEndTheAnswerWhenReached) {
  for (const bool of_guide : {false, true}) {
    begin(340, {.logit_rows = 32}, {scripted(0.6, 340), 5});
    const Request wanted = guided(40, 1, 30);
    const auto expected = AnswerOracle(*model_, pieces_).answer(wanted).ids;
    const std::vector<std::int32_t>& prompt = of_guide ? wanted.negative_prompt : wanted.prompt;
    // Behind what is really said at its 15th token, and behind every wrong guess.
    model_->is_damaged = [&](std::span<const std::int32_t> ids) {
      if (ids.size() <= prompt.size() || !std::equal(prompt.begin(), prompt.end(), ids.begin())) {
        return false;
      }
      const auto said = ids.subspan(prompt.size());
      return said.size() == 15 || !std::equal(said.begin(), said.end(), expected.begin());
    };
    const Asked& asked = ask(wanted);
    run_all(200);
    EXPECT_EQ(asked.reasons[0], FinishReason::kError);
    EXPECT_EQ(asked.ids[0], std::vector<std::int32_t>(expected.begin(), expected.begin() + 15));
    EXPECT_GT(asked.usages[0].accepted_tokens, 0);
    expect_no_leak();
  }
}

TEST_F(GuidedGuesses, NoneWhereTheyAreNotWanted) {
  begin(340, {.logit_rows = 32}, {scripted(1.0, 340), 5});
  Request off = guided(40, 1, 40);
  off.speculate = false;
  Request hooked = guided(40, 1, 40);
  hooked.after_sampling = [](const SampledToken& token) { return token.id; };
  answer({off, hooked});
  EXPECT_EQ(core_->stats().drafted_tokens, 0);
}

}  // namespace
}  // namespace bl
