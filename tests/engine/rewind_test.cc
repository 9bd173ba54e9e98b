// Banned strings: answers go back to before them, and nothing of it shows.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "sample/log_probability.h"
#include "words_test.h"

namespace bl {
namespace {

using test::AnswerOracle;

using RewindTest = test::WordsTest;

TEST_P(RewindTest, BannedStringsNeverAppear) {
  start_words(test::letter_pieces(340, 4));
  const std::vector<std::string> banned{"dd", "ABC", "cabba", "bab"};
  for (std::int32_t seed = 0; seed < 12; ++seed) {
    Request wanted = words(30, seed, 80);
    wanted.sampling.banned_strings = banned;
    ask(wanted);
  }
  run_all(4000);
  std::int64_t rewinds = 0;
  for (const Asked& asked : asked_) {
    EXPECT_EQ(asked.reasons[0], FinishReason::kMaxTokens) << asked.errors[0];
    for (const std::string& bad : banned) {
      EXPECT_EQ(lower(asked.texts[0]).find(lower(bad)), std::string::npos) << asked.texts[0];
    }
    expect_as_defined(asked);
    rewinds += asked.usages[0].rewinds;
  }
  EXPECT_GT(rewinds, 100);
  expect_no_leak();
}

TEST_P(RewindTest, WhatIsGivenOutIsNeverTakenBack) {
  start_words(test::letter_pieces(340, 4));
  Request wanted = words(30, 3, 200);
  wanted.sampling.banned_strings = {"dda", "abcabc", "cb", "bbb"};
  Asked& asked = ask(wanted);
  const AnswerOracle::Answer expected = oracle_->answer(wanted);
  std::size_t ahead = 0;
  while (!asked.over()) {
    step();
    read(asked);
    ASSERT_EQ(asked.texts[0], expected.text.substr(0, asked.texts[0].size()));
    ASSERT_LE(asked.ids[0].size(), expected.ids.size());
    ASSERT_TRUE(std::equal(asked.ids[0].begin(), asked.ids[0].end(), expected.ids.begin()));
    ahead += asked.texts[0].size() < expected.text.size() && !asked.texts[0].empty() ? 1 : 0;
  }
  EXPECT_EQ(asked.texts[0], expected.text);
  EXPECT_GT(ahead, 50u);  // it came as a stream
}

// Penalties, mirostat, seeds and log-probabilities are those of the text that stays.
TEST_P(RewindTest, SamplersSeeOnlyWhatStays) {
  start_words(test::letter_pieces(340, 4));
  for (int kind = 0; kind < 4; ++kind) {
    Request wanted = words(40, kind, 60);
    SamplingParams& params = wanted.sampling;
    params.temperature = 6;
    params.seed = 11;
    params.n = 3;
    params.top_k = 0;
    params.top_p = 1;
    params.banned_strings = {"dd", "aba", "ca"};
    params.logprobs = true;
    params.top_logprobs = 2;
    if (kind == 1) params.repetition_penalty = 1.5;
    if (kind == 1) params.dry_multiplier = 3;
    if (kind == 2) params.mirostat_mode = 2;
    if (kind == 3) params.adaptive_target = 0.1;
    ask(wanted);
  }
  run_all(4000);
  for (const Asked& asked : asked_) {
    expect_as_defined(asked);
    EXPECT_NE(asked.ids[0], asked.ids[1]);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_GT(asked.usages[i].rewinds, 0);
      ASSERT_EQ(asked.logprobs[i].size(), asked.ids[i].size());
      for (std::size_t t = 0; t < asked.ids[i].size(); ++t) {
        EXPECT_EQ(asked.logprobs[i][t].token.id, asked.ids[i][t]);
      }
    }
  }
  expect_no_leak();
}

// Token by token through the end of a page that has been published in the meantime.
TEST_P(RewindTest, GoesBackOverTheEndOfAPage) {
  start_words(test::letter_pieces(84, 4), {.pages = 128});
  std::vector<std::string> banned;  // of two tokens and more, so many that some come up
  for (const char* head : {"ab", "cd", "ba", "da", "cc", "bd"}) {
    for (const char* tail : {"aac", "cab", "bbd", "dca", "adb", "dbb"}) {
      banned.push_back(std::string(head) + tail);
    }
  }
  std::int64_t rewinds = 0;
  for (std::size_t prompt = 246; prompt < 260; ++prompt) {
    Request wanted = words(prompt, 7, 60);
    wanted.sampling.banned_strings = banned;
    ask(wanted);
    ask(wanted);
  }
  run_all(6000);
  for (const Asked& asked : asked_) {
    expect_as_defined(asked);
    rewinds += asked.usages[0].rewinds;
  }
  EXPECT_GT(rewinds, 60);
  expect_no_leak();
}

TEST_P(RewindTest, OneStringThatCoversEverythingIsAnErrorOfThatRequest) {
  start_words(test::letter_pieces(3, 3));
  Request hopeless = words(20, 1, 30);
  hopeless.sampling.banned_strings = {"a", "b", "c"};
  Asked& first = ask(hopeless);
  Asked& second = ask(words(20, 2, 30));
  run_all(2000);
  EXPECT_EQ(first.reasons[0], FinishReason::kError);
  EXPECT_NE(first.errors[0].find("no token is left"), std::string::npos) << first.errors[0];
  EXPECT_EQ(first.texts[0], "");
  expect_as_defined(second);
  // Where a vocabulary is too large to be tried out, the number of attempts ends it.
  start_words(test::letter_pieces(900, 3));
  hopeless.sampling.banned_strings = {"a", "b", "c"};
  Asked& third = ask(hopeless);
  run_all(2000);
  EXPECT_EQ(third.reasons[0], FinishReason::kError);
  EXPECT_NE(third.errors[0].find("banned_strings: 256"), std::string::npos) << third.errors[0];
  EXPECT_LE(core_->stats().steps, 300);
  expect_no_leak();
}

// An answer that goes back again and again verifies more guesses than it has tokens.
TEST_P(RewindTest, RecordedRoundsAreNoMoreThanTokens) {
  start_words(test::letter_pieces(39, 3));  // of up to three letters
  Request hopeless = words(20, 1, 6);
  hopeless.record_draft_rounds = true;
  const std::string letters = "abc";
  for (const char a : letters) {
    for (const char b : letters) {
      for (const char c : letters) {
        for (const char d : letters) hopeless.sampling.banned_strings.push_back({a, b, c, d});
      }
    }
  }
  Asked& asked = ask(hopeless);
  run_all(4000);
  EXPECT_EQ(asked.reasons[0], FinishReason::kError);
  EXPECT_GT(asked.usages[0].rewinds, 20);
  EXPECT_EQ(asked.answers[0].draft_rounds.size(), GetParam() ? 6u : 0u);
}

TEST_P(RewindTest, ThousandsOfStringsCostNextToNothing) {
  start_words(test::letter_pieces(340, 4));
  Request wanted = words(30, 3, 300);
  Request plain = wanted;
  const std::vector<std::string> texts = test::letter_pieces(5800, 4);
  wanted.sampling.banned_strings.assign(texts.begin() + 800, texts.end());
  for (std::string& text : wanted.sampling.banned_strings) text += "bac";
  ASSERT_EQ(wanted.sampling.banned_strings.size(), 5000u);
  validate(wanted.sampling);
  Asked& asked = ask(wanted);
  run_all(4000);
  expect_as_defined(asked);
  EXPECT_EQ(asked.reasons[0], FinishReason::kMaxTokens) << asked.errors[0];
}

TEST_P(RewindTest, StopStringsAndEndsCountAtOnce) {
  start_words({"a", "b", "c", "X"});
  // The stop is complete while a banned string is only begun: what was held belongs to the answer.
  Request wanted = words(4, 1, 50);
  wanted.sampling.logit_bias = {{3, -100.0}, {2, -100.0}};
  wanted.sampling.banned_strings = {"bX"};
  Asked& plain = ask(wanted);
  run_all(200);
  const std::string all = plain.texts[0];
  ASSERT_EQ(all.size(), 50u);
  const std::size_t at = all.find("ab");
  ASSERT_NE(at, std::string::npos);
  wanted.sampling.stop_strings = {"ab"};
  wanted.sampling.banned_strings = {"abX", "bX"};
  Asked& stopped = ask(wanted);
  run_all(200);
  EXPECT_EQ(stopped.reasons[0], FinishReason::kStopString);
  EXPECT_EQ(stopped.texts[0], all.substr(0, at));
  // Text held at the end of an answer is given out.
  wanted.sampling.stop_strings.clear();
  wanted.sampling.banned_strings = {all + "c"};
  Asked& held = ask(wanted);
  for (int i = 0; i < 6; ++i) step();
  read(held);
  EXPECT_EQ(held.texts[0], "");
  run_all(200);
  EXPECT_EQ(held.texts[0], all);
  EXPECT_EQ(held.ids[0], plain.ids[0]);
}

// Tokens of one byte: the banned character is made of two, and upper case of it is banned too.
TEST_P(RewindTest, CharactersOfSeveralTokens) {
  // "Ã" stands for the byte C3, "ī" (U+012B) for 89, "©" for A9: É and é.
  start_words({"Ã", "ī", "©", "a"});
  Request wanted = words(6, 1, 120);
  wanted.skip_special = true;
  wanted.continues_prompt = false;
  Asked& plain = ask(wanted);
  run_all(200);
  ASSERT_NE(plain.texts[0].find("\u00e9"), std::string::npos) << plain.texts[0];
  ASSERT_NE(plain.texts[0].find("\u00c9"), std::string::npos);
  wanted.sampling.banned_strings = {"\u00e9"};
  Asked& asked = ask(wanted);
  run_all(600);
  EXPECT_EQ(asked.reasons[0], FinishReason::kMaxTokens) << asked.errors[0];
  EXPECT_EQ(asked.texts[0].find("\u00e9"), std::string::npos);
  EXPECT_EQ(asked.texts[0].find("\u00c9"), std::string::npos);
  EXPECT_EQ(asked.texts[0], tokenizer_->decode(asked.ids[0], true));
  EXPECT_GT(asked.usages[0].rewinds, 0);
}

// A row of tokens that are bytes is text when something else follows, or when the answer ends.
TEST_P(RewindTest, RowsOfBytesAreTextAtTheirEnd) {
  start_words({"<0x61>", "<0x62>", "<0xC3>", "<0xA9>", "x", "y"}, {}, "ByteFallback");
  std::int64_t at_the_end = 0;
  for (std::int32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Request wanted = words(6, seed, 24);
    wanted.continues_prompt = false;
    if (seed % 2 == 0) wanted.sampling.stop_tokens = {5};
    Asked& plain = ask(wanted);
    run_all(400);
    for (const char* banned : {"ab", "b\u00e9", "\u00e9x", "ba"}) {
      at_the_end += plain.texts[0].ends_with(banned) ? 1 : 0;
      wanted.sampling.banned_strings = {banned};
      Asked& asked = ask(wanted);
      run_all(4000);
      ASSERT_NE(asked.reasons[0], FinishReason::kError) << asked.errors[0];
      EXPECT_EQ(asked.texts[0].find(banned), std::string::npos) << asked.texts[0];
      std::vector<std::int32_t> ids = asked.ids[0];
      if (asked.reasons[0] == FinishReason::kEndToken) ids.pop_back();
      EXPECT_EQ(asked.texts[0], tokenizer_->decode(ids, true));
      // What it goes back to is the token that says the string's first sign, not the row's.
      for (const WithheldText& one : asked.answers[0].suppressed) {
        const std::string said = tokenizer_->decode({one.ids.data(), 1}, true);
        EXPECT_EQ(said.front() == 'a' || said.front() == 'b', *banned == 'a' || *banned == 'b');
      }
    }
  }
  EXPECT_GT(at_the_end, 5);
  expect_no_leak();
}

TEST_P(RewindTest, PausesCancelsAndPreemptionsChangeNothing) {
  start_words(test::letter_pieces(340, 4), {.context = 1024, .pages = 6});
  for (std::int32_t seed = 0; seed < 5; ++seed) {
    Request wanted = words(230, seed, 120);
    wanted.sampling.banned_strings = {"dd", "aba", "ca"};
    wanted.unread_tokens = 7;
    ask(wanted);
  }
  asked_[3].open->stream->cancel();
  run_all(20000);
  EXPECT_GT(core_->stats().preemptions, 0);
  for (std::size_t i : {0u, 1u, 2u, 4u}) expect_as_defined(asked_[i]);
  expect_no_leak();
}

// --- token healing ---

TEST_P(RewindTest, HealingChoosesTheEndOfThePromptAgain) {
  start_words({"Ġ", "w", "or", "Ġwor", "Ġworld", "Ġworlds", "ld", "x", "y", "Ġthe", "d"});
  // "x wor": " wor" is taken off; " world" and " worlds" go on from it.
  for (const std::int32_t likely : {3, 4, 5}) {
    Request wanted = request({7, 3}, 6);
    wanted.sampling.token_healing = true;
    wanted.sampling.logit_bias = {{likely, 100.0}, {6, 50.0}};
    Asked& asked = ask(wanted);
    run_all(100);
    EXPECT_EQ(asked.healed[0], std::vector<std::int32_t>{likely});
    EXPECT_EQ(asked.answers[0].kept, 1);
    EXPECT_EQ(asked.ids[0].size(), 6u);
    EXPECT_EQ(asked.usages[0].generated_tokens, 6);
    EXPECT_EQ(asked.usages[0].prompt_tokens, 2);
    const std::string head = likely == 3 ? "" : (likely == 4 ? "ld" : "lds");
    EXPECT_EQ(asked.texts[0].substr(0, head.size()), head) << asked.texts[0];
    std::string text = head;
    for (const std::int32_t id : asked.ids[0]) text += tokenizer_->decode({&id, 1}, true);
    EXPECT_EQ(asked.texts[0], text);
  }
  // Several tokens: " ", "w", "or" are the beginning of one.
  Request several = request({7, 0, 1, 2}, 4);
  several.sampling.token_healing = true;
  several.sampling.logit_bias = {{4, 100.0}};
  Asked& asked = ask(several);
  // The same tokens again are one way of saying it.
  several.sampling.logit_bias = {{0, 100.0}, {1, 90.0}, {2, 80.0}};
  Asked& same = ask(several);
  run_all(100);
  EXPECT_EQ(asked.healed[0], std::vector<std::int32_t>{4});
  EXPECT_EQ(asked.texts[0].substr(0, 2), "ld");
  EXPECT_EQ(same.healed[0], (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(same.answers[0].kept, 1);
  EXPECT_EQ(same.usages[0].generated_tokens, 4);
  expect_no_leak();
}

TEST_P(RewindTest, HealingLeavesTheFirstTokenAndSpecialOnes) {
  tokenizer_ = test::make_word_tokenizer({"a", "ab", "b"}, {"<s>"});
  start({.vocab = 4, .gives_logits = true}, 0, tokenizer_.get());
  Request wanted = request({0}, 3);
  wanted.sampling.token_healing = true;
  Asked& single = ask(wanted);
  wanted.prompt = {0, 3};
  Asked& special = ask(wanted);
  run_all(50);
  EXPECT_TRUE(single.healed[0].empty());
  EXPECT_TRUE(special.healed[0].empty());
  EXPECT_EQ(single.ids[0], model_->continuation({0}, 3));
  EXPECT_EQ(special.ids[0], model_->continuation({0, 3}, 3));
}

TEST_P(RewindTest, HealedAnswersAreAsDefined) {
  start_words(test::letter_pieces(340, 4));
  for (std::int32_t seed = 0; seed < 10; ++seed) {
    Request wanted = words(static_cast<std::size_t>(2 + 29 * seed), seed, 30);
    wanted.sampling.token_healing = true;
    wanted.sampling.n = 2;
    wanted.sampling.temperature = seed % 2 == 0 ? 0 : 5;
    if (seed % 3 == 0) wanted.sampling.banned_strings = {"da", "bcb", "aa"};
    ask(wanted);
  }
  run_all(2000);
  for (const Asked& asked : asked_) {
    expect_as_defined(asked);
    EXPECT_FALSE(asked.healed[0].empty());
  }
  expect_no_leak();
}

TEST_P(RewindTest, HealedTokensHaveLogProbabilities) {
  start_words(test::letter_pieces(340, 4));
  for (const bool wanted_too : {true, false}) {
    Request wanted = words(40, 2, 10);
    wanted.sampling.token_healing = true;
    wanted.sampling.logprobs = wanted_too;
    wanted.sampling.top_logprobs = 2;
    ask(wanted);
  }
  run_all(200);
  const Answer& answer = asked_[0].answers[0];
  ASSERT_FALSE(answer.healed.empty());
  ASSERT_EQ(answer.healed_logprobs.size(), answer.healed.size());
  EXPECT_EQ(answer.logprobs.size(), answer.ids.size());
  std::vector<std::int32_t> before = asked_[0].open->request.prompt;
  before.resize(static_cast<std::size_t>(answer.kept));
  for (std::size_t i = 0; i < answer.healed.size(); ++i) {
    const TokenLogprobs& one = answer.healed_logprobs[i];
    const std::vector<float> row = model_->row(before);
    EXPECT_EQ(one.token.id, answer.healed[i]);
    EXPECT_NEAR(one.token.logprob, row[static_cast<std::size_t>(one.token.id)] - log_sum_exp(row),
                1e-4);
    EXPECT_EQ(one.best.size(), 2u);
    before.push_back(one.token.id);
  }
  EXPECT_EQ(asked_[1].answers[0].healed, answer.healed);
  EXPECT_TRUE(asked_[1].answers[0].healed_logprobs.empty());
}

// Healed tokens count as prompt where the best of several answers is chosen, too.
TEST_P(RewindTest, HealedTokensMakeNoAnswerBetter) {
  start_words(test::letter_pieces(340, 4));
  for (std::int32_t seed = 0; seed < 20; ++seed) {
    Request wanted = words(40, seed, 1);
    wanted.sampling.token_healing = true;
    wanted.sampling.temperature = 6;
    wanted.sampling.logprobs = true;
    wanted.sampling.n = 5;
    ask(wanted);
    wanted.sampling.n = 1;
    wanted.sampling.best_of = 5;
    ask(wanted);
  }
  run_all(2000);
  int healed_apart = 0;
  for (std::size_t i = 0; i < asked_.size(); i += 2) {
    const auto score = [](const std::vector<TokenLogprobs>& one) { return one[0].token.logprob; };
    const auto& all = asked_[i].logprobs;
    const auto best = std::max_element(
        all.begin(), all.end(), [&](const auto& a, const auto& b) { return score(a) < score(b); });
    EXPECT_EQ(score(asked_[i + 1].logprobs[0]), score(*best));
    healed_apart += asked_[i].healed[0] != asked_[i].healed[1] ? 1 : 0;
  }
  EXPECT_GT(healed_apart, 0);
}

// --- guidance ---

TEST_P(RewindTest, GuidanceMixesTwoTexts) {
  start_words(test::letter_pieces(340, 4), {.step_tokens = 64, .logit_rows = 5});
  for (std::int32_t seed = 0; seed < 6; ++seed) {
    Request wanted = words(30 + 60 * static_cast<std::size_t>(seed), seed, 40);
    wanted.sampling.cfg_scale = seed % 2 == 0 ? 3 : -0.5;
    wanted.sampling.n = 1 + seed % 3;
    wanted.sampling.temperature = seed % 2 == 0 ? 0 : 5;
    wanted.negative_prompt = words(200 - 30 * static_cast<std::size_t>(seed), 77, 1).prompt;
    if (seed == 4) wanted.sampling.banned_strings = {"da", "bcb", "aa"};
    if (seed == 5) wanted.sampling.token_healing = true;
    ask(wanted);
  }
  Asked& plain = ask(words(30, 0, 40));
  run_all(4000);
  for (const Asked& asked : asked_) expect_as_defined(asked);
  EXPECT_NE(asked_[1].ids[0], plain.ids[0]);
  expect_no_leak();
  // The negative prompt is known when it comes again.
  const std::int64_t before = model_->computed;
  Request again = words(700, 50, 1);
  again.sampling.cfg_scale = 2;
  again.negative_prompt = asked_[0].open->request.negative_prompt;
  ask(again);
  run_all(50);
  EXPECT_EQ(model_->computed - before, 700 + 1);
}

TEST_P(RewindTest, GuidanceWithFewPagesAndLeavers) {
  start_words(test::letter_pieces(340, 4), {.context = 1024, .pages = 7});
  for (std::int32_t seed = 0; seed < 6; ++seed) {
    Request wanted = words(200, seed, 100);
    wanted.sampling.cfg_scale = 2;
    wanted.negative_prompt = words(180, seed + 9, 1).prompt;
    ask(wanted);
  }
  for (int i = 0; i < 30; ++i) step();
  asked_[1].open->stream->cancel();
  run_all(20000);
  EXPECT_GT(core_->stats().preemptions, 0);
  for (std::size_t i : {0u, 2u, 3u, 4u, 5u}) expect_as_defined(asked_[i]);
  EXPECT_EQ(asked_[1].reasons[0], FinishReason::kCancelled);
  expect_no_leak();
}

// As an answer without guidance does.
TEST_P(RewindTest, GuidanceEndsWhereTheCacheIsFull) {
  start_words(test::letter_pieces(340, 4), {.context = 1024, .pages = 4});
  for (const std::size_t negative : {20u, 300u, 500u}) {
    SCOPED_TRACE(negative);
    Request wanted = words(300, 1, 700);
    wanted.sampling.cfg_scale = 2;
    wanted.negative_prompt = words(negative, 2, 1).prompt;
    Asked& asked = ask(wanted);
    run_all(1000);
    EXPECT_EQ(asked.reasons[0], FinishReason::kContext) << asked.errors[0];
    // Three pages and one, two and two, and again.
    const std::size_t longest = negative == 20 ? 536 : negative == 300 ? 512 : 312;
    EXPECT_EQ(asked.ids[0].size(), longest - 300);
    wanted.sampling.max_tokens = static_cast<std::int64_t>(longest) - 300;
    EXPECT_EQ(asked.ids[0], oracle_->answer(wanted).ids);
  }
  expect_no_leak();
}

// A large cache keeps some pages for others to grow, but not from the second text of an answer.
TEST_P(RewindTest, GuidanceTakesAllOfALargeCache) {
  start_words(test::letter_pieces(340, 4), {.context = 16384, .step_tokens = 4096, .pages = 64});
  Request wanted = words(7900, 1, 700);
  wanted.sampling.cfg_scale = 2;
  wanted.negative_prompt = words(8000, 2, 1).prompt;
  Asked& asked = ask(wanted);
  run_all(1000);
  EXPECT_EQ(asked.reasons[0], FinishReason::kContext) << asked.errors[0];
  EXPECT_EQ(asked.ids[0].size(), 192u);
  expect_no_leak();
}

TEST_P(RewindTest, DamagedRowsOfEitherTextEndTheAnswer) {
  start_words(test::letter_pieces(340, 4));
  Request wanted = words(20, 1, 30);
  wanted.sampling.cfg_scale = 2;
  wanted.negative_prompt = words(10, 5, 1).prompt;
  model_->is_damaged = [&](std::span<const std::int32_t> ids) {
    return ids.size() == 14 &&
           std::equal(ids.begin(), ids.begin() + 10, wanted.negative_prompt.begin());
  };
  Asked& asked = ask(wanted);
  Asked& plain = ask(words(20, 1, 30));
  run_all(200);
  EXPECT_EQ(asked.reasons[0], FinishReason::kError);
  EXPECT_EQ(asked.ids[0].size(), 4u);
  expect_as_defined(plain);
  expect_no_leak();
}

TEST_P(RewindTest, GuidanceThatDoesNotFitIsRefused) {
  start_words(test::letter_pieces(340, 4), {.context = 512, .pages = 3});
  Request wanted = words(300, 1, 5);
  wanted.sampling.cfg_scale = 2;
  wanted.negative_prompt = words(290, 2, 1).prompt;
  EXPECT_THROW(ask(wanted), Error);  // four pages
  wanted.negative_prompt = words(600, 2, 1).prompt;
  EXPECT_THROW(ask(wanted), Error);
  wanted.negative_prompt = {340};
  EXPECT_THROW(ask(wanted), Error);
  start_words(test::letter_pieces(340, 4), {.logit_rows = 1});
  wanted.negative_prompt = {1};
  EXPECT_THROW(ask(wanted), Error);
}

INSTANTIATE_TEST_SUITE_P(, RewindTest, testing::Bool(), [](const auto& param) {
  return param.param ? std::string("WithGuesses") : std::string("WithoutGuesses");
});

}  // namespace
}  // namespace bl
