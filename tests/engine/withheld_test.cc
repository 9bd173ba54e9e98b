// What an answer's last event says of its end: what ended it, and what was generated without being
// given out.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "words_test.h"

namespace bl {
namespace {

using WithheldTest = test::WordsTest;

// The tokens of a text that have a part in [begin, end): all of them are whole characters.
std::vector<std::int32_t> tokens_within(const std::vector<std::int32_t>& ids,
                                        const Tokenizer& tokenizer, std::size_t begin,
                                        std::size_t end) {
  std::vector<std::int32_t> found;
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    const std::size_t behind = at + tokenizer.decode({&id, 1}, true).size();
    if (behind > begin && at < end) found.push_back(id);
    at = behind;
  }
  return found;
}

TEST_P(WithheldTest, TheStopStringAndWhatFollowsItAreNeverGivenOut) {
  start_words(test::letter_pieces(340, 4));
  for (const bool banned : {false, true}) {
    Request wanted = words(30, 3, 120);
    // Tokens wait for strings that never come up, or are taken back for those that do.
    if (banned) wanted.sampling.banned_strings = {"dd", "ABC", "bab", "acadabdac"};
    Asked& plain = ask(wanted);
    run_all(600);
    const std::string& all = plain.texts[0];
    for (const std::size_t size : {1u, 2u, 5u, 9u, 40u}) {
      const std::string stop = all.substr(all.size() / 2, size);
      const std::size_t at = all.find(stop);
      wanted.sampling.stop_strings = {stop, stop + "x"};
      Asked& asked = ask(wanted);
      run_all(600);
      ASSERT_EQ(asked.reasons[0], FinishReason::kStopString) << asked.errors[0];
      const Answer& answer = asked.answers[0];
      EXPECT_EQ(answer.text, all.substr(0, at));
      EXPECT_EQ(answer.stop_string, stop);
      EXPECT_FALSE(answer.end_token);
      // All that was generated is in one or the other.
      const std::string generated = tokenizer_->decode(answer.ids, true);
      EXPECT_EQ(answer.text + answer.held.text, generated);
      EXPECT_TRUE(answer.held.text.starts_with(stop));
      EXPECT_EQ(answer.held.ids, tokens_within(answer.ids, *tokenizer_, at, generated.size()));
    }
  }
}

// "Ã" stands for the byte C3, "ī" for 89, "©" for A9: a character that is a stop string belongs to
// both of its tokens.
TEST_P(WithheldTest, CharactersOfSeveralTokens) {
  start_words({"Ã", "ī", "©", "a"});
  Request wanted = words(6, 1, 120);
  wanted.continues_prompt = false;
  wanted.sampling.stop_strings = {"\u00e9"};
  Asked& asked = ask(wanted);
  run_all(200);
  ASSERT_EQ(asked.reasons[0], FinishReason::kStopString);
  EXPECT_EQ(asked.answers[0].held.text, "\u00e9");
  EXPECT_EQ(asked.answers[0].held.ids, (std::vector<std::int32_t>{0, 2}));
}

// … and where it shows at the end only that bytes are text, it has ended the answer as well.
TEST_P(WithheldTest, AStopStringThatTheEndCompletes) {
  start_words({"<0x61>", "<0x62>"}, {}, "ByteFallback");
  Request wanted = words(6, 1, 12);
  wanted.continues_prompt = false;
  Asked& plain = ask(wanted);
  run_all(200);
  ASSERT_EQ(plain.texts[0].size(), 12u);
  wanted.sampling.stop_strings = {plain.texts[0].substr(4)};
  Asked& asked = ask(wanted);
  run_all(200);
  EXPECT_EQ(asked.reasons[0], FinishReason::kStopString);
  EXPECT_EQ(asked.answers[0].stop_string, plain.texts[0].substr(4));
  EXPECT_EQ(asked.texts[0], plain.texts[0].substr(0, 4));
}

TEST_P(WithheldTest, AnEndTokenIsNamed) {
  start_words(test::letter_pieces(340, 4));
  Request wanted = words(30, 3, 40);
  Asked& plain = ask(wanted);
  run_all(200);
  EXPECT_FALSE(plain.answers[0].end_token);
  EXPECT_TRUE(plain.answers[0].held.ids.empty());
  EXPECT_EQ(plain.answers[0].held.text, "");
  const std::int32_t end = plain.ids[0][20];
  const auto count =
      std::find(plain.ids[0].begin(), plain.ids[0].end(), end) - plain.ids[0].begin();
  wanted.sampling.stop_tokens = {end};
  // What waits for a stop string is given out; the token alone is withheld.
  wanted.sampling.stop_strings = {plain.texts[0] + "x"};
  Asked& asked = ask(wanted);
  run_all(200);
  const Answer& answer = asked.answers[0];
  ASSERT_EQ(answer.reason, FinishReason::kEndToken);
  const std::string name(tokenizer_->id_to_token(end));
  ASSERT_TRUE(answer.end_token);
  EXPECT_EQ(answer.end_token->id, end);
  EXPECT_EQ(answer.end_token->text, name);
  EXPECT_EQ(answer.held.ids, std::vector<std::int32_t>{end});
  EXPECT_EQ(answer.held.text, name);
  ASSERT_EQ(answer.ids.size(), static_cast<std::size_t>(count) + 1);
  EXPECT_EQ(answer.text,
            tokenizer_->decode(std::span(answer.ids).first(answer.ids.size() - 1), true));
}

// A text that the length ends in the middle of a stop string is given out, all of it.
TEST_P(WithheldTest, NothingIsWithheldWhereTheLengthEndsIt) {
  start_words(test::letter_pieces(340, 4));
  Request wanted = words(30, 3, 40);
  Asked& plain = ask(wanted);
  run_all(200);
  wanted.sampling.stop_strings = {plain.texts[0].substr(20) + "x"};
  Asked& asked = ask(wanted);
  run_all(200);
  EXPECT_EQ(asked.reasons[0], FinishReason::kMaxTokens);
  EXPECT_EQ(asked.texts[0], plain.texts[0]);
  EXPECT_EQ(asked.answers[0].held.text, "");
  EXPECT_TRUE(asked.answers[0].held.ids.empty());
}

// The reader of a choice that takes text back again and again is behind by those tokens, too.
TEST_P(WithheldTest, WhatIsSuppressedWaitsForASlowReaderToo) {
  start_words(test::letter_pieces(340, 4));
  Request wanted = words(30, 3, 200);
  wanted.sampling.banned_strings = {"a", "bb", "cc"};
  wanted.unread_tokens = 20;
  Asked& asked = ask(wanted);
  while (step()) {
  }
  EXPECT_LT(asked.open->stream->unread(0), 20 + 2 * 8);
  std::size_t suppressed = 0;
  if (const auto event = asked.open->stream->next(EngineClock::now())) {
    for (const WithheldText& one : event->suppressed) suppressed += one.ids.size();
    EXPECT_LT(event->ids.size(), 20u);
    asked.answers[0].add(*event);
  }
  EXPECT_GT(suppressed, 0u);
  run_all(4000);
  EXPECT_EQ(asked.answers[0].text, oracle_->answer(wanted).text);
}

INSTANTIATE_TEST_SUITE_P(, WithheldTest, testing::Bool(), [](const auto& param) {
  return param.param ? std::string("WithGuesses") : std::string("WithoutGuesses");
});

}  // namespace
}  // namespace bl
