// However a choice is cut into events, its tokens are shown with the same places.

#include "api/shown_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "../engine/word_tokenizer.h"
#include "api/logprobs.h"
#include "base/json.h"
#include "engine/answer_text.h"

namespace bl::openai {
namespace {

struct Case {
  std::vector<std::int32_t> prompt;
  Answer answer;
};

// An answer of these tokens with the text that the engine would give.
Case case_of(const Tokenizer& tokenizer, std::vector<std::int32_t> prompt,
             const std::vector<std::int32_t>& ids) {
  Answer answer;
  answer.ids = ids;
  AnswerText text(tokenizer, true, {}, prompt);
  for (const std::int32_t id : ids) {
    answer.text += text.push(id);
    answer.logprobs.push_back({{id, -0.5f}, {}});
  }
  answer.text += text.finish();
  return {std::move(prompt), std::move(answer)};
}

// The events of an answer whose text and tokens are cut anywhere: text comes late where a stop
// string might begin.
std::vector<Event> cut(const Answer& answer, std::mt19937& random) {
  std::vector<Event> events;
  std::size_t text = 0;
  std::size_t healed = 0;
  std::size_t token = 0;
  const auto take = [&](auto& to, const auto& from, std::size_t& at) {
    const std::size_t more = std::min(random() % 3, from.size() - at);
    to.insert(to.end(), from.begin() + static_cast<long>(at),
              from.begin() + static_cast<long>(at + more));
    at += more;
  };
  while (text < answer.text.size() || token < answer.logprobs.size()) {
    Event& event = events.emplace_back();
    take(event.healed_logprobs, answer.healed_logprobs, healed);
    event.healed.resize(event.healed_logprobs.size());
    event.kept = answer.kept;
    if (healed < answer.healed_logprobs.size()) continue;
    take(event.logprobs, answer.logprobs, token);
    // Never earlier than its tokens.
    if (random() % 2 == 0 || token < answer.logprobs.size() / 2) continue;
    take(event.text, answer.text, text);
  }
  events.emplace_back().finish = FinishReason::kMaxTokens;
  return events;
}

void expect_cuts_alike(const Tokenizer& tokenizer, const Case& one) {
  const Logprobs logprobs(tokenizer);
  const Json whole = logprobs.completion(one.answer, one.prompt);
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    ShownTokens tokens(logprobs.names(), one.prompt);
    std::vector<ShownToken> all;
    for (const Event& event : cut(one.answer, random)) {
      for (ShownToken& token : tokens.add(event)) all.push_back(std::move(token));
    }
    ASSERT_EQ(logprobs.completion(all), whole);
  }
}

TEST(ShownTokens, PiecesOfCharactersBehindAPromptThatBeginsOne) {
  const auto tokenizer =
      test::make_word_tokenizer({"Hi", "Ġthere", "Ġâĸ", "ģ", "ä", "½ł!", "x"}, {"<s>", "</s>"});
  const Case one = case_of(*tokenizer, {6, 2}, {3, 0, 1, 2, 3, 4, 5, 8, 0});
  ASSERT_EQ(one.answer.text, "\u2581Hi there \u2581\u4f60!Hi");
  expect_cuts_alike(*tokenizer, one);
}

TEST(ShownTokens, HealedTokens) {
  const auto tokenizer = test::make_word_tokenizer({"Ġ", "w", "or", "Ġw", "orld", "!", "Ġworld"});
  Case one{{5, 0, 1, 2}, {}};  // "! wor"
  one.answer.kept = 1;
  one.answer.healed = {3, 4};
  one.answer.healed_logprobs = {{{3, -1}, {}}, {{4, -1}, {}}};
  one.answer.logprobs = {{{5, -1}, {}}, {{5, -1}, {}}, {{6, -1}, {}}};
  one.answer.text = "ld!! world";
  expect_cuts_alike(*tokenizer, one);
}

// A decoder drops the first space of a text that stands by itself, and the text shows that late.
TEST(ShownTokens, ATextThatHasLostItsSpace) {
  const auto tokenizer = test::make_word_tokenizer({"Ġ", "Ġa", "b"});
  const Logprobs logprobs(*tokenizer);
  Case one{{}, {}};
  for (const std::int32_t id : {1, 2, 1, 2}) one.answer.logprobs.push_back({{id, -1}, {}});
  one.answer.text = " ab ab";
  EXPECT_EQ(logprobs.completion(one.answer, {}).at("text_offset"), (Json{0, 2, 3, 5}));
  expect_cuts_alike(*tokenizer, one);
  one.answer.text = "ab ab";
  EXPECT_EQ(logprobs.completion(one.answer, {}).at("text_offset"), (Json{0, 1, 2, 4}));
  expect_cuts_alike(*tokenizer, one);
}

TEST(ShownTokens, WaitUntilTheTextTells) {
  const auto tokenizer = test::make_word_tokenizer({"Ġ", "Ġa", "b"});
  const TokenNames names(*tokenizer);
  ShownTokens tokens(names, {});
  EXPECT_TRUE(tokens.add(Event{.logprobs = {{{1, -1}, {}}}}).empty());
  EXPECT_TRUE(tokens.add(Event{.text = "", .logprobs = {{{2, -1}, {}}}}).empty());
  EXPECT_EQ(tokens.add(Event{.text = "a"}).size(), 2u);
  EXPECT_EQ(tokens.add(Event{.logprobs = {{{2, -1}, {}}}}).size(), 1u);
  // Nothing is kept behind the end.
  ShownTokens silent(names, {});
  EXPECT_TRUE(silent.add(Event{.logprobs = {{{1, -1}, {}}}}).empty());
  EXPECT_EQ(silent.add(Event{.finish = FinishReason::kStopString}).size(), 1u);
}

}  // namespace
}  // namespace bl::openai
